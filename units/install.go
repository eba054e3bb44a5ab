package units

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"slices"

	"nodegate/internal/host/tree"
)

// PathChange is one path that an installation changes.
type PathChange struct {
	Path   string
	Action Action
}

// Action is a kind of change to a path.
type Action string

// The actions.
const (
	Create  Action = "create"
	Replace Action = "replace"
	Restore Action = "restore" // the file that existed before nodegate
	Remove  Action = "remove"
)

// Plan returns the changes that Install would make; there are none if the files are installed
// already. Unless force is set, it returns an error with one line for each path that another
// program has changed since nodegate wrote it.
func Plan(t Tree, files []File, force bool) ([]PathChange, error) {
	j, err := readJournal(t)
	if err != nil {
		return nil, err
	}
	s, err := planStep(t, j, files, force)
	if err != nil {
		return nil, err
	}
	return s.changes, nil
}

// Install writes the files below the root. It also finishes a run that was killed. If a file cannot
// be written, for lack of space or of permission, nothing changes.
func Install(t Tree, files []File, force bool) ([]PathChange, error) {
	l, err := takeLock(t)
	if err != nil {
		return nil, err
	}
	changes, err := install(t, l, files, force)
	return changes, errors.Join(err, l.release(t))
}

func install(t Tree, l *lock, files []File, force bool) ([]PathChange, error) {
	stateDirs, err := missingDirs(t, JournalFile)
	if err != nil {
		return nil, err
	}
	j, err := readJournal(t)
	if err != nil {
		return nil, err
	}
	j.Dirs = append(append(j.Dirs, l.dirs...), stateDirs...)
	s, err := planStep(t, j, files, force)
	if err == nil {
		err = removeStaged(t, j)
	}
	if err == nil && len(s.changes) == 0 {
		return nil, nil
	}
	if err == nil {
		err = errors.Join(makeDirs(t, stateDirs, 0o755), s.run(t))
	}
	switch {
	case err == nil:
		return s.changes, nil
	case s != nil && s.committed:
		err = fmt.Errorf("%w; the installation is incomplete: run `nodegate install` again to finish it, or `nodegate uninstall` to "+
			"remove it", err)
	case s != nil && s.unfinished:
		err = fmt.Errorf("%w; run `nodegate uninstall` to remove what is left", err)
	case len(j.Entries) == 0:
		err = errors.Join(err, removeState(t, j, l))
	}
	return nil, err
}

// removeStaged removes files that a killed run left beside the files in the journal.
func removeStaged(t Tree, j *journal) error {
	errs := []error{t.Unstage(JournalFile), t.UnstageDir(PolicyDir)}
	for _, e := range j.Entries {
		errs = append(errs, t.Unstage(e.Path))
	}
	return errors.Join(errs...)
}

// step holds all changes of one installation. It is complete before the first write.
type step struct {
	old     *journal
	next    journal
	files   []File // files that differ on the machine
	fresh   []int  // entries of next whose Before must be backed up
	dropped []entry
	changes []PathChange

	policy  []string // names in PolicyDir that change
	copied  string   // the copy of PolicyDir in which they change together, or ""
	swapped bool     // the copy has replaced PolicyDir

	lost       bool // a gate of nodegate exists that is not in the journal
	committed  bool // at least one file may have been renamed into place
	unfinished bool // directories of a failed run remain, and only the journal lists them
}

func planStep(t Tree, j *journal, files []File, force bool) (*step, error) {
	s := &step{old: j, next: journal{APIVersion: journalVersion, Kind: journalKind, Dirs: slices.Clone(j.Dirs)}}
	gate, err := findLostGate(t, j)
	s.lost = gate != ""
	errs := []error{err}
	for _, f := range files {
		errs = append(errs, s.addFile(t, f, force))
	}
	for _, e := range j.Entries {
		if slices.ContainsFunc(files, func(f File) bool { return f.Path == e.Path }) {
			continue
		}
		now, err := t.Stat(e.Path)
		if err == nil && now.Type == tree.Absent && path.Dir(e.Path) == PolicyDir { // the operator removed it: do not restore it
			s.changes = append(s.changes, PathChange{e.Path, Remove})
			continue
		}
		if err == nil && !e.isOurs(now) && !force {
			err = changedError(t, e.Path)
		}
		errs = append(errs, err)
		s.dropped = append(s.dropped, e)
		s.changes = append(s.changes, undoOf(&e))
	}
	if len(s.changes) > 0 {
		errs = append(errs, t.Replaceable(JournalFile))
		s.changes = slices.Insert(s.changes, 0, PathChange{JournalFile, map[bool]Action{true: Create, false: Replace}[j.Entries == nil]})
	}
	for _, f := range s.files {
		errs = append(errs, t.Replaceable(f.Path))
	}
	for _, e := range s.dropped {
		errs = append(errs, t.Replaceable(e.Path))
	}
	return s, joinOnce(errs)
}

// joinOnce joins errors and leaves out repetitions: one immutable directory may hold several files.
func joinOnce(errs []error) error {
	seen := map[string]bool{}
	return errors.Join(slices.DeleteFunc(errs, func(err error) bool {
		if err == nil || seen[err.Error()] {
			return true
		}
		seen[err.Error()] = true
		return false
	})...)
}

func (s *step) addFile(t Tree, f File, force bool) error {
	now, err := t.Stat(f.Path)
	if err != nil {
		return err
	}
	if now.Type == tree.Dir || now.Type == tree.Other {
		return fmt.Errorf("%s is in the way: it is neither a file nor a symbolic link; move it", t.Full(f.Path))
	}
	want := f.node()
	e := entry{Path: f.Path, Before: now, Wrote: []tree.Entry{want}}
	known := s.old.find(f.Path)
	if known != nil {
		if !known.isOurs(now) && !sameNode(now, want) && !force {
			return changedError(t, f.Path)
		}
		e.Before = known.Before
		for _, n := range known.Wrote {
			if !sameNode(n, want) {
				e.Wrote = append(e.Wrote, n)
			}
		}
	} else {
		if sameNode(now, want) && s.isLeftover(f) {
			e.Before = tree.Entry{Type: tree.Absent}
		}
		s.fresh = append(s.fresh, len(s.next.Entries))
	}
	s.next.Entries = append(s.next.Entries, e)
	switch {
	case now.Type == tree.Absent:
		s.changes = append(s.changes, PathChange{f.Path, Create})
	case !sameNode(now, want):
		s.changes = append(s.changes, PathChange{f.Path, Replace})
	case known == nil || len(e.Wrote) > 1:
		// The file is right, but the journal does not record yet that nodegate wrote it.
		s.changes = append(s.changes, PathChange{f.Path, Replace})
		return nil
	default:
		return nil
	}
	s.files = append(s.files, f)
	missing, err := missingDirs(t, f.Path)
	for _, d := range missing {
		if !slices.Contains(s.next.Dirs, d) {
			s.next.Dirs = append(s.next.Dirs, d)
		}
	}
	return err
}

func (f File) node() tree.Entry {
	if f.Target != "" {
		return tree.Entry{Type: tree.SymLink, Target: f.Target}
	}
	sum := sha256.Sum256(f.Content)
	return tree.Entry{Type: tree.File, Mode: f.Mode, Sum: hex.EncodeToString(sum[:])}
}

// run writes the backups, the journal and every file under a temporary name, and only then renames
// the files. A failure before the renames is undone.
func (s *step) run(t Tree) error {
	if err := makeDirs(t, []string{backupDir}, 0o700); err != nil {
		return err
	}
	for _, i := range s.fresh {
		if err := backup(t, s.next.Entries[i].Path, s.next.Entries[i].Before); err != nil {
			return err
		}
	}
	union := s.next
	union.Entries = append(slices.Clone(s.next.Entries), s.dropped...)
	if err := union.write(t); err != nil {
		return err
	}
	if err := s.stage(t); err != nil {
		for _, f := range s.files {
			err = errors.Join(err, t.Unstage(f.Path))
		}
		// The journal lists the new directories until they are gone.
		added := slices.DeleteFunc(slices.Clone(s.next.Dirs), func(d string) bool { return slices.Contains(s.old.Dirs, d) })
		undone := errors.Join(t.UnstageDir(PolicyDir), removeDirs(t, added))
		if s.unfinished = undone != nil; !s.unfinished && len(s.old.Entries) > 0 {
			undone = s.old.write(t)
		}
		return errors.Join(err, undone)
	}
	s.committed = true
	for _, f := range s.files {
		commit := func() error { return t.Commit(f.Path) }
		if s.isCopied(f.Path) {
			commit = func() error { return s.commitDir(t) }
		}
		if err := commit(); err != nil {
			return err
		}
	}
	if err := s.commitDir(t); err != nil { // if it contains only dropped files
		return err
	}
	for _, e := range slices.Backward(s.dropped) { // as uninstall does: a drop-in before the binary that it calls
		if s.isCopied(e.Path) {
			continue
		}
		if err := e.restore(t); err != nil {
			return err
		}
	}
	for i := range s.next.Entries {
		s.next.Entries[i].Wrote = s.next.Entries[i].Wrote[:1]
	}
	return s.next.write(t)
}

func (s *step) stage(t Tree) error {
	if err := makeDirs(t, s.next.Dirs, 0o755); err != nil {
		return err
	}
	if err := s.stageDir(t); err != nil {
		return err
	}
	for _, f := range s.files {
		if s.isCopied(f.Path) {
			continue
		}
		var err error
		if f.Target != "" {
			err = t.StageLink(f.Path, f.Target)
		} else {
			err = t.StageFile(f.Path, f.Content, f.Mode)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func changedError(t Tree, p string) error {
	return fmt.Errorf("%s has changed since nodegate wrote it; save the change elsewhere, or overwrite it with --force",
		t.Full(p))
}

func undoOf(e *entry) PathChange {
	if e.Before.Type == tree.Absent {
		return PathChange{e.Path, Remove}
	}
	return PathChange{e.Path, Restore}
}
