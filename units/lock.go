package units

import (
	"errors"
	"io/fs"
)

// lock keeps a second run from writing the same tree.
type lock struct {
	dirs []string // to be removed with it, where they are empty
	free func() error
}

// lockTries bounds how often an uninstallation that ends just now may remove the
// directory that the lock is made in.
const lockTries = 10

func takeLock(t Tree) (*lock, error) {
	l := &lock{}
	var err error
	for range lockTries {
		var missing []string
		if missing, err = missingDirs(t, lockFile); err != nil {
			break
		}
		l.dirs = append(l.dirs, missing...)
		if err = makeDirs(t, missing, 0o755); err == nil {
			l.free, err = t.Lock(lockFile)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(err, removeDirs(t, l.dirs))
	}
	return l, nil
}

// release removes the lock, and then the directories that only it needed.
func (l *lock) release(t Tree) error { return errors.Join(l.free(), removeDirs(t, l.dirs)) }
