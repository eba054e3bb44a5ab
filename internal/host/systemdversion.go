package host

import (
	"fmt"
	"strconv"
	"strings"
)

// SystemdVersion reads systemd's version off the name of its shared library,
// which exists in a file tree as on a running machine.
func (h *Host) SystemdVersion() (int, Evidence, error) {
	dirs := []string{"/usr/lib/systemd", "/lib/systemd", "/usr/lib64/systemd", "/usr/lib/x86_64-linux-gnu/systemd", "/usr/lib/aarch64-linux-gnu/systemd"}
	for _, dir := range dirs {
		names, err := h.ReadDirIfAny(dir)
		if err != nil {
			return 0, Evidence{}, err
		}
		for _, name := range names {
			rest, ok := strings.CutPrefix(name, "libsystemd-shared-")
			if !ok {
				continue
			}
			digits := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
			if v, err := strconv.Atoi(digits); err == nil {
				return v, Evidence{dir + "/" + name, "systemd " + digits}, nil
			}
		}
	}
	return 0, Evidence{}, fmt.Errorf("cannot tell systemd's version: no libsystemd-shared-* in %s", strings.Join(dirs, ", "))
}
