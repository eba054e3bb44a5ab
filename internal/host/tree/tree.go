// Package tree writes files below an untrusted root: a machine's or an image's.
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

// Tree writes files below a root. Paths are absolute inside the root; neither ".." nor a symbolic
// link leads out of it (os.Root rejects them). A file appears atomically: it is staged in the same
// directory under a name that no program reads, flushed, then renamed.
type Tree struct {
	root *os.Root
	name string
}

// Entry describes the object at a path. The zero value means that nothing exists.
type Entry struct {
	Type    EntryType   `json:"type,omitempty"`
	Mode    fs.FileMode `json:"mode,omitempty"`
	UID     int         `json:"uid,omitempty"`
	GID     int         `json:"gid,omitempty"`
	ModTime time.Time   `json:"modTime,omitzero"`
	Sum     string      `json:"sha256,omitempty"` // hash of a file's content
	Target  string      `json:"target,omitempty"` // target of a symbolic link
}

// EntryType is the type of an Entry.
type EntryType string

// The entry types. Other is a type that nodegate neither writes nor replaces: a device, a pipe, a
// socket.
const (
	Absent  EntryType = ""
	File    EntryType = "file"
	SymLink EntryType = "symlink"
	Dir     EntryType = "dir"
	Other   EntryType = "other"
)

// Open opens the root. The error names a root that does not exist or is not a directory.
func Open(root string) (*Tree, error) {
	r, err := os.OpenRoot(root)
	if err != nil {
		return nil, fmt.Errorf("opening root: %w", err)
	}
	return &Tree{r, strings.TrimSuffix(root, "/")}, nil
}

// Close releases the root.
func (t *Tree) Close() { t.root.Close() }

// Full returns a path in the form that the caller's shell uses.
func (t *Tree) Full(p string) string { return t.name + p }

// rel returns the path in the form that os.Root expects.
func rel(p string) string { return strings.TrimPrefix(path.Clean(p), "/") }

// withPath puts the whole path into an error, and explains "escapes".
func (t *Tree) withPath(p string, err error) error {
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
		const why = "a symbolic link in the path leads out of the root or is absolute; replace it by a directory or a relative link"
		return fmt.Errorf("%s: %s", t.Full(p), why)
	}
	if errors.Is(err, unix.EROFS) {
		return fmt.Errorf("%s: %w; change the image that it comes from, or mount it writable (`mount -o remount,rw`)", t.Full(p), err)
	}
	return fmt.Errorf("%s: %w", t.Full(p), err)
}

// Stat returns the object at p, without following symbolic links.
func (t *Tree) Stat(p string) (Entry, error) {
	info, err := t.root.Lstat(rel(p))
	if errors.Is(err, fs.ErrNotExist) {
		return Entry{}, nil
	}
	if err != nil {
		return Entry{}, t.withPath(p, err)
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
		n.Sum, err = t.hashFile(p)
	}
	return n, t.withPath(p, err)
}

// maxFile limits the size of a file: the largest one is nodegate itself.
const maxFile = 256 << 20

// open opens a file or a directory without blocking.
func (t *Tree) open(p string, flags int) (*os.File, error) {
	return t.root.OpenFile(orDot(rel(p)), os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|flags, 0)
}

func (t *Tree) hashFile(p string) (string, error) {
	b, err := t.read(p)
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), err
}

// Read returns a file's content.
func (t *Tree) Read(p string) ([]byte, error) {
	b, err := t.read(p)
	return b, t.withPath(p, err)
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
		return nil, t.withPath(p, err)
	}
	names, err := file.Names(f)
	return names, t.withPath(p, err)
}

// Mkdir makes one directory.
func (t *Tree) Mkdir(p string, mode fs.FileMode) error {
	err := t.root.Mkdir(rel(p), mode)
	if err == nil {
		err = t.copyAttributes(p, p)
	}
	if err == nil {
		err = t.root.Chmod(rel(p), mode) // independently of the umask
	}
	return t.withPath(p, err)
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
		return t.withPath(p, err)
	}
	return nil
}

func (t *Tree) flushDir(p string) error {
	d, err := t.open(p, unix.O_DIRECTORY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return t.withPath(p, err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, unix.EINVAL) {
		return t.withPath(p, err)
	}
	return nil
}

func orDot(p string) string {
	if p == "" {
		return "."
	}
	return p
}
