package host

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"nodegate/internal/host/config"
)

// SystemdVersion reads systemd's version off the name of its shared library
// (libsystemd-shared-252.so), which exists in a file tree as on a running machine.
func (h *Host) SystemdVersion() (int, Evidence, error) {
	dirs := []string{
		"/usr/lib/systemd", "/lib/systemd", "/usr/lib64/systemd", "/usr/lib/x86_64-linux-gnu/systemd", "/usr/lib/aarch64-linux-gnu/systemd",
	}
	var unreadable error
	for _, dir := range dirs {
		names, err := h.Files.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			unreadable = err
		}
		for _, name := range names {
			rest, ok := strings.CutPrefix(name, "libsystemd-shared-")
			major, _, _ := strings.Cut(config.LeadingNumbers(rest), ".")
			if v, err := strconv.Atoi(major); ok && err == nil {
				return v, Evidence{dir + "/" + name, "systemd " + major}, nil
			}
		}
	}
	if unreadable != nil {
		return 0, Evidence{}, unreadable
	}
	return 0, Evidence{}, fmt.Errorf("cannot tell systemd's version: no libsystemd-shared-* in %s", strings.Join(dirs, ", "))
}
