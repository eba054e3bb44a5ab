package units

import (
	"errors"
	"slices"
	"strings"

	"nodegate/internal/host"
)

// Uninstall puts back what existed at every path before the first Install, and
// removes the directories that Install made and that are empty now. It changes
// nothing where somebody has changed what nodegate wrote, unless force is set; the
// error joins one line for each such path. Where nothing is installed it returns no
// change. It finishes a run that was killed.
func Uninstall(t Tree, force bool) ([]Change, error) {
	if n, err := t.Stat(stateDir); err != nil || n.Type == host.Absent {
		return nil, err
	}
	release, err := t.Lock(stateDir)
	if err != nil {
		return nil, err
	}
	defer release()
	j, err := readJournal(t)
	if err != nil {
		return nil, err
	}
	var errs []error
	var changes []Change
	for _, e := range j.Entries {
		now, err := t.Stat(e.Path)
		if err == nil && !e.ours(now) && !force {
			err = changedError(t, e.Path)
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	// The drop-in goes first, the binary that it calls last.
	for _, e := range slices.Backward(j.Entries) {
		// Already restored: a killed run did that, and its backup may be gone.
		if now, err := t.Stat(e.Path); err == nil && sameNode(now, e.Before) {
			if err := t.Unstage(e.Path); err != nil {
				return changes, err
			}
			continue
		}
		if err := e.restore(t); err != nil {
			return changes, err
		}
		changes = append(changes, undoing(&e))
	}
	return changes, forget(t, j)
}

// forget removes the directories that were made, the journal and the backups.
// Without the journal the backups are only leftovers: the journal goes before them,
// never after.
func forget(t Tree, j *journal) error {
	aboveState := func(d string) bool { return strings.HasPrefix(stateDir, d) }
	errs := []error{
		removeDirs(t, slices.DeleteFunc(slices.Clone(j.Dirs), aboveState)),
		t.Unstage(JournalFile), t.Remove(JournalFile),
	}
	if names, err := t.Names(backupDir); err == nil {
		for _, n := range names {
			errs = append(errs, t.Remove(backupDir+"/"+n))
		}
	}
	errs = append(errs, removeDirs(t, []string{stateDir, backupDir}), removeDirs(t, j.Dirs))
	return errors.Join(errs...)
}

// removeDirs removes directories, children first, and leaves those that are not
// empty.
func removeDirs(t Tree, dirs []string) error {
	var errs []error
	for _, d := range slices.Backward(dirs) {
		names, err := t.Names(d)
		if err == nil && len(names) == 0 {
			errs = append(errs, t.Remove(d))
		}
	}
	return errors.Join(errs...)
}
