package file

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// MayOthersWrite returns the command that takes from others than root, and than the
// caller, the right to write a file or directory; "" where they have none. A read-only
// file system gives none: kubelet mounts the directories of ConfigMaps so, with mode 0777.
func MayOthersWrite(name string) (mend string, err error) {
	info, err := os.Stat(name)
	if err != nil {
		return "", err
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(name, &fs); err == nil && fs.Flags&unix.ST_RDONLY != 0 {
		return "", nil
	}
	if info.Mode()&0o022 != 0 {
		return "chmod go-w", nil
	}
	if s, ok := info.Sys().(*syscall.Stat_t); ok && s.Uid != 0 && int(s.Uid) != os.Geteuid() {
		return "chown root", nil
	}
	return "", nil
}
