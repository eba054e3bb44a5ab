package file

import (
	"errors"
	"os"
	"path/filepath"

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
// such as node_exporter sees the old content or the new one. The file keeps its mode, unless mode permits its owner alone. Anything
// else, such as a device, a FIFO or a symbolic link, is written through.
func Output(name string, content []byte, mode os.FileMode) error {
	info, err := os.Lstat(name)
	if err == nil && !info.Mode().IsRegular() {
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_TRUNC, 0)
		if err != nil {
			return err
		}
		_, err = f.Write(content)
		return errors.Join(err, f.Close())
	}
	if err == nil && mode&0o077 != 0 {
		mode = info.Mode().Perm()
	}
	return Replace(name, content, mode)
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
