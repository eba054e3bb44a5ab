package host

import (
	"fmt"
	"slices"
	"strings"
)

// BreakGlass returns how the operator has disabled the gate (break-glass), or "". Only a file that
// certainly exists disables it: if BreakGlass cannot determine that, it returns the error and the
// gate stays closed. An unreadable /proc/cmdline does not disable the gate either.
func (h *Host) BreakGlass(disabledFile string) (string, error) {
	if cmdline, err := h.Text("/proc/cmdline"); err == nil {
		if slices.Contains(strings.Fields(cmdline), "nodegate=off") {
			return "nodegate=off on the kernel command line", nil
		}
	}
	exists, err := h.Files.Exists(disabledFile)
	if err != nil {
		return "", fmt.Errorf("could not determine whether %s exists: %w", disabledFile, err)
	}
	if exists {
		return disabledFile, nil
	}
	return "", nil
}
