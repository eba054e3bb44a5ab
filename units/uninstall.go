package units

import (
	"errors"
	"io/fs"
	"slices"
	"strings"

	"nodegate/internal/host/tree"
)

// Uninstall puts back what existed at every path before the first Install, and
// removes the directories that Install made and that are empty now. It changes
// nothing where somebody has changed what nodegate wrote, unless force is set; the
// error joins one line for each such path. Where nothing is installed it returns no
// change; where the gate of an installation is there and its journal is lost, an error. It finishes a run that was killed.
func Uninstall(t Tree, force bool) ([]PathChange, error) {
	if err := checkJournalLost(t); err != nil {
		return nil, err
	}
	state, err := t.Stat(stateDir)
	if err != nil {
		return nil, err
	}
	// An installation that was killed at its beginning has left its lock only.
	if lock, err := t.Stat(lockFile); err != nil || state.Type == tree.Absent && lock.Type == tree.Absent {
		return nil, err
	}
	l, err := takeLock(t)
	if err != nil {
		return nil, err
	}
	changes, err := uninstall(t, l, force)
	return changes, errors.Join(err, l.release(t))
}

func uninstall(t Tree, l *lock, force bool) ([]PathChange, error) {
	j, err := readJournal(t)
	if err != nil {
		return nil, err
	}
	var errs []error
	var changes []PathChange
	for _, e := range j.Entries {
		now, err := t.Stat(e.Path)
		if err == nil && !e.isOurs(now) && !force {
			err = changedError(t, e.Path)
		}
		errs = append(errs, err)
	}
	errs = append(errs, removeStaged(t, j))
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	// The drop-in goes first, the binary that it calls last, the policy as a whole.
	var s step
	for _, e := range slices.Backward(j.Entries) {
		// Already restored: a killed run did that, and its backup may be gone.
		if now, err := t.Stat(e.Path); err == nil && sameNode(now, e.Before) {
			continue
		}
		s.dropped = append(s.dropped, e)
	}
	if err := s.stageDir(t); err != nil { // no room for a copy: then one by one
		s.copied = ""
		if err := t.UnstageDir(PolicyDir); err != nil {
			return nil, err
		}
	}
	for _, e := range s.dropped {
		restore := e.restore
		if s.isCopied(e.Path) {
			restore = s.commitDir
		}
		if err := restore(t); err != nil {
			return changes, err
		}
		changes = append(changes, undoOf(&e))
	}
	return changes, removeState(t, j, l)
}

// forget removes the directories that were made, the journal and the backups.
// Without the journal the backups are only leftovers: the journal goes before them,
// never after, and they stay where it does. The directories above the lock go when it
// is released.
func removeState(t Tree, j *journal, l *lock) error {
	aboveState := func(d string) bool { return strings.HasPrefix(stateDir, d) }
	l.dirs = append(l.dirs, j.Dirs...)
	if err := t.Remove(FailedBoot); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err := errors.Join(removeDirs(t, slices.DeleteFunc(slices.Clone(j.Dirs), aboveState)), t.Remove(JournalFile))
	if err != nil {
		return err
	}
	var errs []error
	if names, err := t.Names(backupDir); err == nil {
		for _, n := range names {
			errs = append(errs, t.Remove(backupDir+"/"+n))
		}
	}
	return errors.Join(append(errs, removeDirs(t, []string{stateDir, backupDir}))...)
}
