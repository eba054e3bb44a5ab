package host

import (
	"fmt"
	"slices"
	"strings"

	"nodegate/internal/host/config"
)

// BreakGlass returns how the operator has disabled the gate (break-glass), or "". Only a file that
// certainly exists disables it: if BreakGlass cannot determine that, it returns the error and the
// gate stays closed. An unreadable /proc/cmdline does not disable the gate either.
func (h *Host) BreakGlass(disabledFile string) (string, error) {
	if h.switchedOff() {
		return "nodegate=off on the kernel command line", nil
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

// switchedOff reports whether nodegate=off is a word of the kernel command line, as systemd's
// ConditionKernelCommandLine= determines that for our units: outside quotes, and in a container in
// the arguments of its first process (proc_cmdline). A backslash escapes up to systemd 253 and not
// since, so the word must be there in both readings.
func (h *Host) switchedOff() bool {
	name := "/proc/cmdline"
	if container, err := h.Files.Exists("/run/systemd/container"); err == nil && container {
		name = "/proc/1/cmdline"
	}
	line, err := h.Text(name)
	line = strings.ReplaceAll(line, "\x00", " ")
	has := func(line string) bool { return slices.Contains(config.SplitWords(line), "nodegate=off") }
	return err == nil && has(line) && has(strings.ReplaceAll(line, `\`, `\\`))
}
