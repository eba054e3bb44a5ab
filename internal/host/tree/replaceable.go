package tree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"nodegate/internal/plain"
)

// Replaceable returns an error if not even root can create, replace or remove the object at p: it or its directory is immutable
// or append-only (chattr), it is a mount point, or its file system is mounted read-only. Only a rename would find the first
// three, after earlier files have been renamed. If the directory does not exist, the nearest one above it decides.
func (t *Tree) Replaceable(p string) error {
	dir, err := t.open(path.Dir(p), unix.O_DIRECTORY)
	above := path.Dir(p)
	for errors.Is(err, fs.ErrNotExist) && above != "/" {
		above = path.Dir(above)
		dir, err = t.open(above, unix.O_DIRECTORY)
	}
	if err != nil {
		return t.withPath(above, err)
	}
	defer dir.Close()
	fd := int(dir.Fd())
	var mounted unix.Statfs_t
	if err := unix.Fstatfs(fd, &mounted); err != nil {
		return t.withPath(above, err)
	}
	if mounted.Flags&unix.ST_RDONLY != 0 {
		return fmt.Errorf("%s cannot be written: %w; mount it writable, or install into the image that it comes from", t.Full(p), unix.EROFS)
	}
	holder, err := attributes(fd, "")
	if err == nil {
		err = t.locked(above, holder)
	}
	if err != nil || above != path.Dir(p) {
		return err
	}
	there, err := attributes(fd, path.Base(p))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return t.withPath(p, err)
	}
	// Linux before 5.8 does not report mount points: it shows only mount points of another file system.
	other := there.Dev_major != holder.Dev_major || there.Dev_minor != holder.Dev_minor
	if there.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0 || there.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT == 0 && other {
		return fmt.Errorf("%s is a mount point and cannot be replaced; run `umount %s`", t.Full(p), plain.Quote(t.Full(p)))
	}
	return t.locked(p, there)
}

// attributes returns the attributes of a name in a directory, or of the directory itself. They are empty if the kernel's
// seccomp filter or version lacks statx.
func attributes(dir int, name string) (unix.Statx_t, error) {
	var st unix.Statx_t
	flags := unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT
	if name == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	err := unix.Statx(dir, name, flags, unix.STATX_TYPE, &st)
	if errors.Is(err, unix.ENOSYS) {
		return unix.Statx_t{}, nil
	}
	return st, os.NewSyscallError("statx", err)
}

// locked returns an error if chattr has made an object immutable or append-only.
func (t *Tree) locked(p string, st unix.Statx_t) error {
	for _, l := range []struct {
		attribute      uint64
		flag, whatItIs string
	}{{unix.STATX_ATTR_IMMUTABLE, "i", "immutable"}, {unix.STATX_ATTR_APPEND, "a", "append-only"}} {
		if st.Attributes&l.attribute != 0 {
			return fmt.Errorf("%s is %s and cannot change; run `chattr -%s %s`", t.Full(p), l.whatItIs, l.flag,
				plain.Quote(t.Full(p)))
		}
	}
	return nil
}
