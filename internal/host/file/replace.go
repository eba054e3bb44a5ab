package file

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Replace writes a file of this machine completely or not at all. The new file keeps the labels, ACL and extended attributes of the
// file that it replaces.
func Replace(name string, content []byte, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".nodegate-new-")
	if wrong := (*os.PathError)(nil); errors.As(err, &wrong) {
		wrong.Path = name // the name that the caller knows
	}
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, copyFrom(name, f), f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// Output writes to the file that an operator named. It replaces a regular file completely or not at all, so that a concurrent reader
// such as node_exporter sees the old content or the new one. The file keeps its mode, unless mode permits its owner alone. It writes
// through a device, a FIFO or an open descriptor, such as /dev/stdout. It follows a symbolic link only if no user except root and the
// caller may have made it: the program of another user must not choose the file that root writes.
func Output(name string, content []byte, mode os.FileMode) error {
	return output(name, content, mode, false)
}

// OutputTree is Output for a file of a directory that an operator named. It makes the missing directories.
func OutputTree(name string, content []byte, mode os.FileMode) error {
	return output(name, content, mode, true)
}

func output(name string, content []byte, mode os.FileMode, mkdir bool) (err error) {
	defer func() { // all errors have the name that the caller knows
		if wrong := (*os.PathError)(nil); errors.As(err, &wrong) {
			wrong.Path = name
		}
	}()
	open, at, rest, err := resolve("/", name, true)
	switch {
	case strings.HasSuffix(name, "/"):
		return &os.PathError{Op: "open", Err: unix.EISDIR}
	case err == nil && len(open) == 0 && isDescriptor(at):
		return writeThrough(at, content, os.O_TRUNC)
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return err
	}
	// All above at is safe. From there on another user may replace each component at any time.
	target := filepath.Dir(at)
	below := strings.Split(strings.TrimPrefix(filepath.Join(filepath.Base(at), rest), "/"), "/")
	for i, component := range below {
		target += "/" + component
		if info, err := os.Lstat(target); err == nil && info.Mode()&os.ModeSymlink != 0 {
			return fmt.Errorf("%s: %s is a symbolic link that another user may have made; it was not followed; remove it, or write elsewhere",
				name, filepath.Join(append([]string{filepath.Dir(at)}, below[:i+1]...)...))
		}
		if i == len(below)-1 {
			break
		}
		if mkdir {
			_ = os.Mkdir(target, 0o755) // what else is wrong prevents the next call
		}
		dir, err := os.OpenFile(target, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		if err != nil {
			return err
		}
		defer dir.Close()
		target = fmt.Sprintf("/proc/self/fd/%d", dir.Fd())
	}
	info, err := os.Lstat(target)
	if err == nil && !info.Mode().IsRegular() {
		return writeThrough(target, content, unix.O_NOFOLLOW)
	}
	if err == nil && mode&0o077 != 0 {
		mode = info.Mode().Perm()
	}
	return Replace(target, content, mode)
}

func writeThrough(name string, content []byte, flag int) error {
	f, err := os.OpenFile(name, os.O_WRONLY|flag, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}

// copyFrom copies the attributes of the regular file with this name, if it can be read.
func copyFrom(name string, to *os.File) error {
	old, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	defer old.Close()
	if Regular(old, name) != nil {
		return nil
	}
	return CopyAttributes(int(old.Fd()), int(to.Fd()))
}
