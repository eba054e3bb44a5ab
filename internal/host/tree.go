package host

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Tree writes files below a root. Paths are absolute inside the root; no ".." and no
// symbolic link leads out of it (os.Root rejects them). A file appears at once and
// whole: it is staged in the same directory, flushed, then renamed.
type Tree struct {
	root *os.Root
	name string
}

// Node is what exists at a path. The zero value is nothing.
type Node struct {
	Type    NodeType    `json:"type,omitempty"`
	Mode    fs.FileMode `json:"mode,omitempty"`
	UID     int         `json:"uid,omitempty"`
	GID     int         `json:"gid,omitempty"`
	ModTime time.Time   `json:"modTime,omitzero"`
	Sum     string      `json:"sha256,omitempty"` // of a file's content
	Target  string      `json:"target,omitempty"` // of a symbolic link
}

// NodeType is the type of a Node.
type NodeType string

// The node types. Other is what nodegate neither writes nor replaces: a device, a
// pipe, a socket.
const (
	Absent  NodeType = ""
	File    NodeType = "file"
	SymLink NodeType = "symlink"
	Dir     NodeType = "dir"
	Other   NodeType = "other"
)

// OpenTree opens the root. The error names a root that does not exist or is no
// directory.
func OpenTree(root string) (*Tree, error) {
	r, err := os.OpenRoot(root)
	if err != nil {
		return nil, fmt.Errorf("opening root: %w", err)
	}
	return &Tree{r, strings.TrimSuffix(root, "/")}, nil
}

// Close releases the root.
func (t *Tree) Close() { t.root.Close() }

// Full returns a path as the caller's shell knows it.
func (t *Tree) Full(p string) string { return t.name + p }

// rel returns the path as os.Root expects it.
func rel(p string) string { return strings.TrimPrefix(path.Clean(p), "/") }

// at puts the whole path into an error, and explains "escapes".
func (t *Tree) at(p string, err error) error {
	if err == nil {
		return nil
	}
	var pe *fs.PathError
	var le *os.LinkError
	switch {
	case errors.As(err, &pe):
		err = pe.Err
	case errors.As(err, &le):
		err = le.Err
	}
	if strings.Contains(err.Error(), "escapes") {
		const why = "a symbolic link on the way leads out of the root, or is absolute; replace it by a directory or a relative link"
		return fmt.Errorf("%s: %s", t.Full(p), why)
	}
	return fmt.Errorf("%s: %w", t.Full(p), err)
}

// Stat returns what exists at p, without following symbolic links.
func (t *Tree) Stat(p string) (Node, error) {
	info, err := t.root.Lstat(rel(p))
	if errors.Is(err, fs.ErrNotExist) {
		return Node{}, nil
	}
	if err != nil {
		return Node{}, t.at(p, err)
	}
	n := Node{Type: Other, Mode: info.Mode() &^ fs.ModeType, ModTime: info.ModTime()}
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		n.UID, n.GID = int(s.Uid), int(s.Gid)
	}
	switch {
	case info.IsDir():
		n.Type = Dir
	case info.Mode()&fs.ModeSymlink != 0:
		n.Type = SymLink
		n.Target, err = t.root.Readlink(rel(p))
	case info.Mode().IsRegular():
		n.Type = File
		n.Sum, err = t.sum(p)
	}
	return n, t.at(p, err)
}

func (t *Tree) sum(p string) (string, error) {
	f, err := t.root.Open(rel(p))
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return hex.EncodeToString(h.Sum(nil)), err
}

// Read returns a file's content.
func (t *Tree) Read(p string) ([]byte, error) {
	b, err := t.root.ReadFile(rel(p))
	return b, t.at(p, err)
}

// Names returns the sorted names in a directory.
func (t *Tree) Names(p string) ([]string, error) {
	f, err := t.root.Open(rel(p))
	if err != nil {
		return nil, t.at(p, err)
	}
	names, err := readNames(f)
	return names, t.at(p, err)
}

// Mkdir makes one directory.
func (t *Tree) Mkdir(p string, mode fs.FileMode) error {
	err := t.root.Mkdir(rel(p), mode)
	if err == nil {
		err = t.root.Chmod(rel(p), mode) // whatever the umask
	}
	return t.at(p, err)
}

// staged is where a file waits for its rename: in the same directory, and the same
// for every attempt, so that the leftover of a killed run is found.
func staged(p string) string { return path.Join(path.Dir(p), ".nodegate-new."+path.Base(p)) }

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
func (t *Tree) Own(p string, n Node) error {
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

// Remove removes a file, a link or an empty directory, if it exists.
func (t *Tree) Remove(p string) error {
	if err := t.remove(p); err != nil {
		return err
	}
	return t.flushDir(path.Dir(p))
}

func (t *Tree) remove(p string) error {
	if err := t.root.Remove(rel(p)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return t.at(p, err)
	}
	return nil
}

func (t *Tree) flushDir(p string) error {
	d, err := t.root.Open(orDot(rel(p)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return t.at(p, err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, unix.EINVAL) {
		return t.at(p, err)
	}
	return nil
}

func orDot(p string) string {
	if p == "" {
		return "."
	}
	return p
}

// Lock keeps a second nodegate from writing the same tree, until release is called.
// The directory must exist.
func (t *Tree) Lock(p string) (release func(), err error) {
	d, err := t.root.Open(rel(p))
	if err != nil {
		return nil, t.at(p, err)
	}
	if err := unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: another nodegate is installing or uninstalling here; wait for it", t.Full(p)), d.Close())
	}
	return func() { d.Close() }, nil
}
