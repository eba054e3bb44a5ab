package file

import (
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// MayOthersWrite returns the command that revokes the right of users other than root and the caller
// to write a file or directory, or "" if they do not have it. They never have it on a read-only
// file system: kubelet mounts the directories of ConfigMaps that way, with mode 0777.
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

// MayOthersReplace applies MayOthersWrite to a file, to the target of a symbolic link, and to every
// directory above them, and returns the first match. In a directory with the sticky bit, only root
// may replace root's files.
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
