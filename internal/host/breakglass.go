package host

import (
	"errors"
	"io/fs"
	"strings"
)

// BreakGlass returns the way in which somebody switched the gate off on purpose,
// "" where nobody did. A /proc/cmdline that cannot be read does not switch it off.
func (h *Host) BreakGlass(disabledFile string) string {
	if cmdline, err := h.Text("/proc/cmdline"); err == nil {
		for _, word := range strings.Fields(cmdline) {
			if word == "nodegate=off" {
				return "nodegate=off on the kernel command line"
			}
		}
	}
	if _, err := h.Files.ReadFile(disabledFile); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return disabledFile
	}
	return ""
}
