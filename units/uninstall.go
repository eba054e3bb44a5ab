package units

import (
	"errors"
	"path"
	"slices"
	"strings"

	"nodegate/internal/host/tree"
)

// Uninstall restores every path to its state before the first Install, and removes the directories
// that Install created if they are empty. If another program has changed a file that nodegate wrote,
// Uninstall changes nothing and returns an error with one line for each such path, unless force is
// set. If nothing is installed it returns no changes. If a gate is installed but the journal is lost,
// it returns an error. It also finishes a run that was killed.
func Uninstall(t Tree, force bool) ([]PathChange, error) {
	if err := checkJournalLost(t); err != nil {
		return nil, err
	}
	state, err := t.Stat(stateDir)
	if err != nil {
		return nil, err
	}
	// An installation that was killed at its beginning leaves only its lock.
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
	s, err := planUninstall(t, j, force)
	if err != nil {
		return nil, err
	}
	if err := removeStaged(t, j); err != nil {
		return nil, err
	}
	if err := s.stageDir(t); err != nil { // no space for a copy: remove the files one by one
		s.copied = ""
		if err := t.UnstageDir(PolicyDir); err != nil {
			return nil, err
		}
	}
	for i, e := range s.dropped {
		restore := e.restore
		if s.isCopied(e.Path) {
			restore = s.commitDir
		}
		if err := restore(t); err != nil {
			return s.changes[:i], err
		}
	}
	return s.changes, removeState(t, j, l)
}

// PlanUninstall returns the changes that Uninstall would make.
func PlanUninstall(t Tree, force bool) ([]PathChange, error) {
	if err := checkJournalLost(t); err != nil {
		return nil, err
	}
	j, err := readJournal(t)
	if err != nil {
		return nil, err
	}
	s, err := planUninstall(t, j, force)
	if err != nil {
		return nil, err
	}
	return s.changes, nil
}

// planUninstall returns the entries to restore, if all can be.
func planUninstall(t Tree, j *journal, force bool) (*step, error) {
	var errs []error
	for _, e := range j.Entries {
		now, err := t.Stat(e.Path)
		if err == nil && !e.isOurs(now) && !force {
			err = changedError(t, e.Path)
		}
		errs = append(errs, err)
	}
	// Remove the drop-in first and the binary that it calls last, and the policy as a whole.
	var s step
	for _, e := range slices.Backward(j.Entries) {
		// A killed run has restored it already; its backup may be gone.
		if now, err := t.Stat(e.Path); err == nil && sameNode(now, e.Before) {
			continue
		}
		s.dropped, s.changes = append(s.dropped, e), append(s.changes, undoOf(&e))
		errs = append(errs, t.Replaceable(e.Path))
	}
	if len(s.changes) > 0 {
		s.changes = append(s.changes, PathChange{JournalFile, Remove})
	}
	for _, d := range j.Dirs { // a mount point may stay, but nothing can be removed from a locked directory
		errs = append(errs, t.Replaceable(path.Join(path.Dir(d), ".nodegate")))
	}
	return &s, joinOnce(errs)
}

// removeState removes the created directories, the journal and the backups. It keeps the journal if a directory cannot be
// removed: only the journal lists it. It removes the journal before the backups, which are useless without it, and keeps
// the backups if the journal cannot be removed. The directories above the lock are removed when the lock is released.
func removeState(t Tree, j *journal, l *lock) error {
	aboveState := func(d string) bool { return strings.HasPrefix(stateDir, d) }
	l.dirs = append(l.dirs, j.Dirs...)
	err := removeDirs(t, slices.DeleteFunc(slices.Clone(j.Dirs), aboveState))
	if err == nil {
		err = t.Remove(JournalFile)
	}
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
