package file

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Opening is a place that users other than root and the caller may change, with the command that
// revokes their right.
type Opening struct{ Place, Mend string }

// mayOthersWrite returns the command that revokes the right of users other than root and the caller
// to write a file or directory, or "" if they do not have it. They never have it on a read-only
// file system: kubelet mounts the directories of ConfigMaps that way, with mode 0777.
func mayOthersWrite(name string, info fs.FileInfo) string {
	var fs unix.Statfs_t
	switch {
	case info.Mode()&0o022 == 0 && ours(info):
		return ""
	case unix.Statfs(name, &fs) == nil && fs.Flags&unix.ST_RDONLY != 0:
		return ""
	case info.Mode()&0o022 != 0:
		return "chmod go-w"
	}
	return "chown root"
}

// ours reports whether a file belongs to root or to the caller.
func ours(info fs.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return !ok || s.Uid == 0 || int(s.Uid) == os.Geteuid()
}

// mostLinks bounds the symbolic links of a path, as the kernel does.
const mostLinks = 40

// WhoMayReplace returns each place by which users other than root and the caller may change the
// file or directory name, or replace it: itself, every directory above it, and the same for each
// symbolic link on the way. Links are resolved as if root were /, and places above root do not
// count. In a directory with the sticky bit only the owner of an entry may replace it, so that
// directory counts only if it is name itself, and the entry counts if it is another user's.
func WhoMayReplace(root, name string) ([]Opening, error) {
	all, _, _, err := resolve(root, name, false)
	return all, err
}

// isDescriptor reports whether a path without links names an open file in /proc. Such a link leads to the file itself.
func isDescriptor(name string) bool {
	is, _ := path.Match("/proc/[0-9]*/fd/[0-9]*", name)
	return is
}

// resolve is WhoMayReplace. It also returns the path, without links, of the last existing component or the first missing one, and what
// remains below that. With toWrite it ends at the first opening, and does not follow the link of an open file.
func resolve(root, name string, toWrite bool) (all []Opening, at, rest string, err error) {
	if !path.IsAbs(name) {
		dir, err := os.Getwd()
		if err != nil {
			return nil, "", "", err
		}
		name = dir + "/" + name // not cleaned: in LINK/.., the link is followed first
	}
	at = path.Clean(root)
	links, shared := 0, false
	rest, below := strings.CutPrefix(name, at)
	if !below {
		return nil, "", "", &fs.PathError{Op: "resolve", Path: name, Err: fs.ErrInvalid}
	}
	root = at
	for {
		info, err := os.Lstat(at)
		if err != nil {
			return all, at, rest, err
		}
		rest = strings.TrimLeft(rest, "/")
		if info.Mode()&fs.ModeSymlink != 0 && at != root && (!toWrite || !isDescriptor(at)) {
			if shared && !ours(info) {
				all = append(all, Opening{at, "chown -h root"})
				if toWrite {
					return all, at, rest, nil
				}
			}
			to, err := os.Readlink(at)
			if links++; err != nil || links > mostLinks {
				return all, at, rest, &fs.PathError{Op: "resolve", Path: name, Err: unix.ELOOP}
			}
			at, rest, shared = filepath.Dir(at), to+"/"+rest, false
			if path.IsAbs(to) {
				at = root
			}
			continue
		}
		if at == root {
			if info, err = os.Stat(at); err != nil {
				return all, at, rest, err
			}
		}
		mend := mayOthersWrite(at, info)
		shared = info.IsDir() && info.Mode()&fs.ModeSticky != 0 && mend == "chmod go-w" && rest != ""
		if mend != "" && !shared {
			all = append(all, Opening{at, mend})
		}
		if rest == "" || toWrite && len(all) > 0 {
			return all, at, rest, nil
		}
		var next string
		next, rest, _ = strings.Cut(rest, "/")
		switch {
		case next == ".":
		case next != "..":
			at = strings.TrimSuffix(at, "/") + "/" + next
		case at != root:
			at = filepath.Dir(at)
		}
	}
}
