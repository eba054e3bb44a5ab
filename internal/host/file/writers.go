package file

import (
	"os"
	"path/filepath"
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

// MayOthersReplace is MayOthersWrite for a file, the file that a symbolic link leads to, and every directory above them, of which
// it returns the first. In a directory with the sticky bit nobody may replace what root owns.
func MayOthersReplace(name string) (place, mend string, err error) {
	if name, err = filepath.Abs(name); err != nil {
		return "", "", err
	}
	real, err := filepath.EvalSymlinks(name)
	if err != nil {
		return "", "", err
	}
	for _, place := range []string{name, real} {
		for ; ; place = filepath.Dir(place) {
			info, err := os.Stat(place)
			if err != nil {
				return "", "", err
			}
			mend, err := MayOthersWrite(place)
			sticky := info.IsDir() && info.Mode()&os.ModeSticky != 0 && mend == "chmod go-w"
			if err != nil || mend != "" && !sticky {
				return place, mend, err
			}
			if place == "/" {
				break
			}
		}
	}
	return "", "", nil
}
