package tree

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/file"
)

// lockTries bounds how often another run may remove the lock between its opening and its locking
// here.
const lockTries = 10

// Lock prevents a second nodegate from writing to the same tree until release is called. p is a
// file for this purpose only. Only its owner may open it, and release removes it.
func (t *Tree) Lock(p string) (release func() error, err error) {
	for range lockTries {
		f, err := t.root.OpenFile(rel(p), os.O_RDWR|os.O_CREATE|unix.O_NONBLOCK|unix.O_NOCTTY, 0o600)
		if err != nil {
			return nil, t.withPath(p, err)
		}
		if err := file.Regular(f, t.Full(p)); err != nil {
			return nil, errors.Join(fmt.Errorf("cannot use the lock file: %w; remove it", err), f.Close())
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: another nodegate is installing or uninstalling here; wait for it", t.Full(p)), f.Close())
		}
		// The locked file must be the one that other processes will find.
		if t.isAt(f, p) {
			return func() error { return errors.Join(t.remove(p), f.Close()) }, nil
		}
		f.Close()
	}
	return nil, fmt.Errorf("%s: the lock file keeps being replaced; check whether it is a symbolic link", t.Full(p))
}

func (t *Tree) isAt(f *os.File, p string) bool {
	locked, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := t.root.Lstat(rel(p))
	return err == nil && os.SameFile(locked, there)
}
