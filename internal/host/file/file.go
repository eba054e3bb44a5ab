// Package file reads and writes files whose names come from outside. An object in place of a file
// can neither block the caller nor exhaust its memory.
package file

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"nodegate/internal/plain"
)

// Open opens a regular file for reading, and refuses all other types.
func Open(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	if err := Regular(f, name); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// OpenInput opens a file that is named on the command line: a regular file, or a pipe that the
// shell has already opened, as it does for <(program).
func OpenInput(name string) (*os.File, error) {
	if strings.HasPrefix(name, "/dev/fd/") || name == "/dev/stdin" {
		return os.Open(name)
	}
	return Open(name)
}

// ReadInput reads at most limit bytes of a file that OpenInput opens.
func ReadInput(name string, limit int64) ([]byte, error) {
	f, err := OpenInput(name)
	if err != nil {
		return nil, err
	}
	return Drain(f, limit)
}

// ReadShown is ReadInput for a file whose text may be printed to people and logs, as the mistakes of
// a policy are. It refuses a symbolic link to a file that only some users may read: the user who made the
// link would see the text of that file.
func ReadShown(name string, limit int64) ([]byte, error) {
	f, err := OpenInput(name)
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(name, "/dev/") {
		return Drain(f, limit)
	}
	info, err := os.Lstat(name)
	if err == nil {
		linked := info.Mode()&fs.ModeSymlink != 0
		if open, err := WhoMayReplace("/", name); err != nil || len(open) > 0 { // the link may be gone again
			linked = true
		}
		err = Shown(f, name, linked)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return Drain(f, limit)
}

// Shown returns an error if f was opened by a name that may be a symbolic link, and only some users
// may read it.
func Shown(f *os.File, name string, linked bool) error {
	info, err := f.Stat()
	if err != nil || !linked || info.Mode()&0o004 != 0 {
		return err
	}
	real, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil {
		real, err = filepath.EvalSymlinks(name)
	}
	if abs, absErr := filepath.Abs(name); err == nil && absErr == nil && strings.TrimSuffix(real, " (deleted)") == abs {
		return nil
	}
	return errors.Join(err, fmt.Errorf("%s leads to %s, which not every user may read, and mistakes would print its text; "+
		"replace the link by a copy, or run `chmod o+r %s`", name, real, plain.Quote(real)))
}

// Regular returns an error if f, which has the given name, is not a regular file.
func Regular(f *os.File, name string) error {
	info, err := f.Stat()
	if err == nil {
		err = regular(info.Mode(), name)
	}
	return err
}

func regular(mode fs.FileMode, name string) error {
	if mode.IsRegular() {
		return nil
	}
	return fmt.Errorf("%s is %s, not a regular file", name, kind(mode))
}

func kind(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "a directory"
	case mode&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	}
	return "a device"
}

// Drain reads at most limit bytes and closes the file.
func Drain(f *os.File, limit int64) ([]byte, error) {
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > limit {
		return nil, TooLarge(f.Name(), limit) // refuse a sparse file of 300 GB without reading it
	}
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		return nil, TooLarge(f.Name(), limit)
	}
	return b, err
}

// TooLarge returns the error for a file of more than limit bytes.
func TooLarge(name string, limit int64) error {
	return fmt.Errorf("%s is larger than %d bytes", name, limit)
}

// OpenDir opens a directory.
func OpenDir(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
}

// Names returns the sorted names in a directory and closes it.
func Names(dir *os.File) ([]string, error) {
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}

// ListDir returns the sorted names in a directory.
func ListDir(name string) ([]string, error) {
	f, err := OpenDir(name)
	if err != nil {
		return nil, err
	}
	return Names(f)
}
