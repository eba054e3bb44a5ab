package tree

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/file"
)

// lockTries bounds how often the lock may be removed between its opening and its
// locking, by a run that ends just then.
const lockTries = 10

// Lock keeps a second nodegate from writing the same tree, until release is called.
// p is a file for this alone, which only its owner may open, and which release
// removes.
func (t *Tree) Lock(p string) (release func() error, err error) {
	for range lockTries {
		f, err := t.root.OpenFile(rel(p), os.O_RDWR|os.O_CREATE|unix.O_NONBLOCK|unix.O_NOCTTY, 0o600)
		if err != nil {
			return nil, t.at(p, err)
		}
		if err := file.Regular(f, t.Full(p)); err != nil {
			return nil, errors.Join(fmt.Errorf("the lock is in the way: %w; remove it", err), f.Close())
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: another nodegate is installing or uninstalling here; wait for it", t.Full(p)), f.Close())
		}
		// The file that is locked must be the one that others will find.
		if t.isAt(f, p) {
			return func() error { return errors.Join(t.remove(p), f.Close()) }, nil
		}
		f.Close()
	}
	return nil, fmt.Errorf("%s: the lock is replaced again and again; is it a symbolic link?", t.Full(p))
}

func (t *Tree) isAt(f *os.File, p string) bool {
	locked, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := t.root.Lstat(rel(p))
	return err == nil && os.SameFile(locked, there)
}
