package tree

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"

	"golang.org/x/sys/unix"
)

// StageDir makes a copy of a directory next to it, with which CommitDir replaces the directory, and
// returns the copy's path. The copy contains the directory's files as hard links. StageDir returns
// "" if it cannot make such a copy: files can then only be replaced one by one.
func (t *Tree) StageDir(p string) (string, error) {
	if err := t.UnstageDir(p); err != nil {
		return "", err
	}
	n, err := t.Stat(p)
	if err != nil || n.Type != Dir {
		return "", err
	}
	names, err := t.Names(p)
	if err != nil {
		return "", err
	}
	s := staged(p)
	if err := t.Mkdir(s, n.Mode); err != nil {
		return "", err
	}
	if err := errors.Join(t.copyAttributes(p, s), t.root.Lchown(rel(s), n.UID, n.GID), t.root.Chmod(rel(s), n.Mode)); err != nil {
		return "", t.UnstageDir(p)
	}
	for _, name := range names {
		if IsStaged(name) {
			continue
		}
		if err := t.root.Link(rel(p+"/"+name), rel(s+"/"+name)); err != nil {
			return "", t.UnstageDir(p)
		}
	}
	return s, t.flushDir(s)
}

// CommitDir replaces the directory by the copy, and removes the old directory. A reader of the
// directory finds either the old one or the new one. names are the files that differ: if the file
// system cannot exchange directories, or if the directory is a mount point, these files are moved
// one by one.
func (t *Tree) CommitDir(p string, names []string) error {
	known, err := t.Names(staged(p))
	if err != nil {
		return err
	}
	dir, err := t.open(path.Dir(p), unix.O_DIRECTORY)
	if err != nil {
		return t.withPath(p, err)
	}
	defer dir.Close()
	err = unix.Renameat2(int(dir.Fd()), path.Base(staged(p)), int(dir.Fd()), path.Base(p), unix.RENAME_EXCHANGE)
	switch {
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EXDEV), errors.Is(err, unix.EBUSY),
		errors.Is(err, unix.EOPNOTSUPP):
		if err := t.commitEach(p, names); err != nil {
			return err
		}
	case err != nil:
		return t.withPath(p, err)
	default:
		if err := t.flushDir(path.Dir(p)); err != nil {
			return err
		}
		if err := t.saveNew(p, append(known, names...)); err != nil {
			return err
		}
	}
	return t.UnstageDir(p)
}

func (t *Tree) commitEach(p string, names []string) error {
	for _, name := range names {
		from := rel(staged(p) + "/" + name)
		if _, err := t.root.Lstat(from); errors.Is(err, fs.ErrNotExist) {
			if err := t.remove(p + "/" + name); err != nil {
				return err
			}
			continue
		}
		if err := t.root.Rename(from, rel(p+"/"+name)); err != nil {
			return t.withPath(p+"/"+name, err)
		}
	}
	return t.flushDir(p)
}

// saveNew moves back the files that another program put into the directory after it was copied.
func (t *Tree) saveNew(p string, known []string) error {
	old, err := t.Names(staged(p))
	if err != nil {
		return err
	}
	for _, name := range old {
		if slices.Contains(known, name) || IsStaged(name) {
			continue
		}
		if err := t.root.Rename(rel(staged(p)+"/"+name), rel(p+"/"+name)); err != nil {
			return t.withPath(p+"/"+name, err)
		}
	}
	return nil
}

// UnstageDir removes the copy that StageDir made, or the old directory that it replaced, if there
// is one. It does not remove subdirectories.
func (t *Tree) UnstageDir(p string) error {
	s := staged(p)
	n, err := t.Stat(s)
	if err != nil || n.Type == Absent {
		return err
	}
	if n.Type != Dir {
		return t.remove(s)
	}
	names, err := t.Names(s)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := t.remove(s + "/" + name); err != nil {
			return fmt.Errorf("removing the leftovers of an earlier run: %w", err)
		}
	}
	return t.Remove(s)
}
