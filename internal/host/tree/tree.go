// Package tree writes files below a root that is not trusted: a machine's, or an
// image's.
package tree

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/file"
)

// Tree writes files below a root. Paths are absolute inside the root; no ".." and no
// symbolic link leads out of it (os.Root rejects them). A file appears at once and
// whole: it is staged in the same directory under a name that no program reads,
// flushed, then renamed.
type Tree struct {
	root *os.Root
	name string
}

// Entry is what exists at a path. The zero value is nothing.
type Entry struct {
	Type    EntryType   `json:"type,omitempty"`
	Mode    fs.FileMode `json:"mode,omitempty"`
	UID     int         `json:"uid,omitempty"`
	GID     int         `json:"gid,omitempty"`
	ModTime time.Time   `json:"modTime,omitzero"`
	Sum     string      `json:"sha256,omitempty"` // of a file's content
	Target  string      `json:"target,omitempty"` // of a symbolic link
}

// EntryType is the type of a Node.
type EntryType string

// The node types. Other is what nodegate neither writes nor replaces: a device, a
// pipe, a socket.
const (
	Absent  EntryType = ""
	File    EntryType = "file"
	SymLink EntryType = "symlink"
	Dir     EntryType = "dir"
	Other   EntryType = "other"
)

// Open opens the root. The error names a root that does not exist or is no
// directory.
func Open(root string) (*Tree, error) {
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
func (t *Tree) Stat(p string) (Entry, error) {
	info, err := t.root.Lstat(rel(p))
	if errors.Is(err, fs.ErrNotExist) {
		return Entry{}, nil
	}
	if err != nil {
		return Entry{}, t.at(p, err)
	}
	n := Entry{Type: Other, Mode: info.Mode() &^ fs.ModeType, ModTime: info.ModTime()}
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

// maxFile limits what is read: the largest file is nodegate itself.
const maxFile = 256 << 20

// open opens a file or a directory without waiting for it.
func (t *Tree) open(p string, flags int) (*os.File, error) {
	return t.root.OpenFile(orDot(rel(p)), os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|flags, 0)
}

func (t *Tree) sum(p string) (string, error) {
	b, err := t.read(p)
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), err
}

// Read returns a file's content.
func (t *Tree) Read(p string) ([]byte, error) {
	b, err := t.read(p)
	return b, t.at(p, err)
}

func (t *Tree) read(p string) ([]byte, error) {
	f, err := t.open(p, 0)
	if err != nil {
		return nil, err
	}
	err = file.Regular(f, "it")
	if info, statErr := f.Stat(); err == nil && statErr == nil && info.Size() > maxFile {
		err = file.TooLarge("it", maxFile)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return file.Drain(f, maxFile)
}

// Names returns the sorted names in a directory.
func (t *Tree) Names(p string) ([]string, error) {
	f, err := t.open(p, unix.O_DIRECTORY)
	if err != nil {
		return nil, t.at(p, err)
	}
	names, err := file.Names(f)
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
	d, err := t.open(p, unix.O_DIRECTORY)
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
