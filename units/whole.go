package units

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"syscall"

	"nodegate/internal/host/tree"
	"nodegate/internal/plain"
	"nodegate/policy"
)

// A policy of several files changes as a whole: the new files are written into a copy of the policy
// directory, which then replaces the directory.

// stageDir writes the copy. It does nothing if at most one file differs, because a single rename is
// atomic, or if the tree cannot copy the directory.
func (s *step) stageDir(t Tree) error {
	for _, f := range s.files {
		if path.Dir(f.Path) == PolicyDir {
			s.policy = append(s.policy, path.Base(f.Path))
		}
	}
	for _, e := range s.dropped {
		if path.Dir(e.Path) == PolicyDir {
			s.policy = append(s.policy, path.Base(e.Path))
		}
	}
	if len(s.policy) < 2 {
		return nil
	}
	var err error
	if s.copied, err = t.StageDir(PolicyDir); err != nil || s.copied == "" {
		return err
	}
	for _, f := range s.files {
		if !s.isCopied(f.Path) {
			continue
		}
		to := s.copied + "/" + path.Base(f.Path)
		if err := t.StageFile(to, f.Content, f.Mode); err != nil {
			return err
		}
		if err := t.Commit(to); err != nil {
			return err
		}
	}
	for _, e := range s.dropped {
		if s.isCopied(e.Path) {
			e.Path = s.copied + "/" + path.Base(e.Path)
			if err := e.restore(t); err != nil {
				return err
			}
		}
	}
	return nil
}

// Alone returns an error for each policy file that would remain in the policy directory beside these files. The node would read
// it too, and the combined policy has not been checked.
func Alone(t Tree, files []File) error {
	j, err := readJournal(t)
	if err != nil {
		return err
	}
	names, err := t.Names(PolicyDir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) { // Install reports the path that is in the way
		return nil
	}
	errs := []error{err}
	for _, n := range names {
		p := PolicyDir + "/" + n
		known := j.find(p)
		goes := known != nil && known.Before.Type == tree.Absent
		if policy.IsPolicyFile(n) && !goes && !slices.ContainsFunc(files, func(f File) bool { return f.Path == p }) {
			errs = append(errs, fmt.Errorf("%s is not part of this policy, but the node would read it too: remove it, or install both with "+
				"--policy %s",
				t.Full(p), plain.Quote(t.Full(p))))
		}
	}
	return errors.Join(errs...)
}

// isCopied reports whether a path changes together with the policy directory.
func (s *step) isCopied(p string) bool { return s.copied != "" && path.Dir(p) == PolicyDir }

// commitDir replaces the policy directory by the copy, once.
func (s *step) commitDir(t Tree) error {
	if s.copied == "" || s.swapped {
		return nil
	}
	s.swapped = true
	return t.CommitDir(PolicyDir, s.policy)
}
