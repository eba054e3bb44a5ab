package tree

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
)

// stagedSuffix ends the name of what waits for its rename. No program that reads a
// directory of configuration takes such a name: procps reads hidden files too, but
// only *.conf.
const stagedSuffix = ".nodegate-new"

// staged is where a file waits for its rename: in the same directory, which is the
// same file system, and the same for every attempt, so that the leftover of a killed
// run is found.
func staged(p string) string { return path.Join(path.Dir(p), "."+path.Base(p)+stagedSuffix) }

// IsStaged reports whether a name is that of something staged.
func IsStaged(name string) bool {
	return strings.HasPrefix(name, ".") && strings.HasSuffix(name, stagedSuffix)
}

// StageFile writes and flushes a file beside its final place.
func (t *Tree) StageFile(p string, content []byte, mode fs.FileMode) error {
	s := rel(staged(p))
	if err := t.root.Remove(s); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return t.at(p, err)
	}
	f, err := t.root.OpenFile(s, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return t.at(p, err)
	}
	_, err = io.Copy(f, bytes.NewReader(content))
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	return t.at(p, errors.Join(err, f.Close()))
}

// StageLink makes a symbolic link beside its final place.
func (t *Tree) StageLink(p, target string) error {
	s := rel(staged(p))
	if err := t.root.Remove(s); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return t.at(p, err)
	}
	return t.at(p, t.root.Symlink(target, s))
}

// Own sets the owner and the modification time of what is staged for p.
func (t *Tree) Own(p string, n Entry) error {
	s := rel(staged(p))
	err := t.root.Lchown(s, n.UID, n.GID)
	if err == nil && n.Type == File {
		// A change of owner clears the setuid bits.
		err = errors.Join(t.root.Chmod(s, n.Mode), t.root.Chtimes(s, n.ModTime, n.ModTime))
	}
	return t.at(p, err)
}

// Commit moves what was staged into its place, and flushes the directory.
func (t *Tree) Commit(p string) error {
	if err := t.root.Rename(rel(staged(p)), rel(p)); err != nil {
		return t.at(p, err)
	}
	return t.flushDir(path.Dir(p))
}

// Unstage removes what is staged for p, if anything is.
func (t *Tree) Unstage(p string) error { return t.remove(staged(p)) }
