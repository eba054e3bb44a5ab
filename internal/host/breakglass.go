package host

import (
	"fmt"
	"slices"
	"strings"
)

// BreakGlass returns the way in which somebody switched the gate off on purpose,
// or "". Only a file that certainly exists switches it off: where that cannot be
// told, BreakGlass returns the error and the gate stays closed. A /proc/cmdline
// that cannot be read does not switch it off either.
func (h *Host) BreakGlass(disabledFile string) (string, error) {
	if cmdline, err := h.Text("/proc/cmdline"); err == nil {
		if slices.Contains(strings.Fields(cmdline), "nodegate=off") {
			return "nodegate=off on the kernel command line", nil
		}
	}
	exists, err := h.Files.Exists(disabledFile)
	if err != nil {
		return "", fmt.Errorf("cannot tell whether %s exists: %w", disabledFile, err)
	}
	if exists {
		return disabledFile, nil
	}
	return "", nil
}
