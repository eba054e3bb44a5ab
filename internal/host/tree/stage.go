package tree

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/file"
)

// stagedSuffix ends the name of a file that waits for its rename. No program that reads a
// configuration directory reads such a name: procps also reads hidden files, but only *.conf.
const stagedSuffix = ".nodegate-new"

// staged returns the path at which a file waits for its rename. It is in the same directory, and so
// on the same file system, and it is the same for every attempt, so that the leftover of a killed
// run is found.
func staged(p string) string { return path.Join(path.Dir(p), "."+path.Base(p)+stagedSuffix) }

// IsStaged reports whether a name belongs to a staged file or directory.
func IsStaged(name string) bool {
	return strings.HasPrefix(name, ".") && strings.HasSuffix(name, stagedSuffix)
}

// StageFile writes and flushes a file next to its final path. The file gets the labels, ACL and
// extended attributes of the file that it will replace.
func (t *Tree) StageFile(p string, content []byte, mode fs.FileMode) error {
	s := rel(staged(p))
	if err := t.root.Remove(s); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return t.withPath(p, err)
	}
	f, err := t.root.OpenFile(s, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return t.withPath(p, err)
	}
	_, err = io.Copy(f, bytes.NewReader(content))
	if err == nil {
		err = t.copyAttributes(p, staged(p))
	}
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	return t.withPath(p, errors.Join(err, f.Close()))
}

// StageLink creates a symbolic link next to its final path.
func (t *Tree) StageLink(p, target string) error {
	s := rel(staged(p))
	if err := t.root.Remove(s); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return t.withPath(p, err)
	}
	err := t.root.Symlink(target, s)
	if err == nil {
		err = t.inDirOf(p, func(dir int) error { return file.LabelLink(dir, path.Base(s)) })
	}
	return t.withPath(p, err)
}

// Own sets the owner and the modification time of the staged file for p.
func (t *Tree) Own(p string, n Entry) error {
	s := rel(staged(p))
	err := t.root.Lchown(s, n.UID, n.GID)
	if err == nil && n.Type == File {
		// A change of owner clears the setuid bits.
		err = errors.Join(t.root.Chmod(s, n.Mode), t.root.Chtimes(s, n.ModTime, n.ModTime))
	}
	return t.withPath(p, err)
}

// Commit renames the staged file to its final path, and flushes the directory.
func (t *Tree) Commit(p string) error {
	if err := t.root.Rename(rel(staged(p)), rel(p)); err != nil {
		return t.withPath(p, err)
	}
	return t.flushDir(path.Dir(p))
}

// Unstage removes the staged file for p, if it exists.
func (t *Tree) Unstage(p string) error { return t.remove(staged(p)) }

// copyAttributes gives the new file or directory at to the attributes of the one at from, if it
// exists and has the same type, and otherwise its directory's label.
func (t *Tree) copyAttributes(from, to string) error {
	made, err := t.open(to, unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer made.Close()
	if old, err := t.open(from, unix.O_NOFOLLOW); err == nil {
		defer old.Close()
		if typeOf(old) == typeOf(made) {
			if err := file.CopyAttributes(int(old.Fd()), int(made.Fd())); err != nil {
				return err
			}
		}
	}
	return t.inDirOf(to, func(dir int) error { return file.Label(dir, int(made.Fd())) })
}

func typeOf(f *os.File) fs.FileMode {
	info, err := f.Stat()
	if err != nil {
		return fs.ModeIrregular
	}
	return info.Mode().Type()
}

// inDirOf opens the directory of p.
func (t *Tree) inDirOf(p string, do func(dir int) error) error {
	dir, err := t.open(path.Dir(p), unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer dir.Close()
	return do(int(dir.Fd()))
}
