package units

import (
	"errors"
	"io/fs"
)

// lock prevents a second run from writing to the same tree.
type lock struct {
	dirs []string // directories to remove with the lock if they are empty
	free func() error
}

// lockTries limits the attempts to take the lock. An uninstall that is just finishing may remove the
// lock's directory before each of them.
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

// release removes the lock, and the directories that only the lock needed.
func (l *lock) release(t Tree) error { return errors.Join(l.free(), removeDirs(t, l.dirs)) }
