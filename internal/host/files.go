package host

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sort"

	"github.com/cyphar/filepath-securejoin/pathrs-lite"
	"golang.org/x/sys/unix"
)

// maxFile limits what is read from one file: modules.dep of a distribution kernel
// has less than 1 MiB, a full rule dump of kube-proxy 16 MiB.
const maxFile = 64 << 20

// machineFiles reads and writes the running machine's files.
type machineFiles struct{}

func (machineFiles) ReadFile(name string) ([]byte, error) { return ReadFile(name, maxFile) }

func (machineFiles) ReadDir(name string) ([]string, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	return readNames(f)
}

func (machineFiles) Exists(name string) (bool, error) { return existed(os.Lstat(name)) }

func existed(_ fs.FileInfo, err error) (bool, error) {
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func (machineFiles) ReadLink(name string) (string, error) { return os.Readlink(name) }

func (machineFiles) Write(name string, data []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// treeFiles reads files below a root that is not trusted: every symbolic link is
// resolved as if the root were /, so that none leads out of it.
type treeFiles struct{ root string }

func (t treeFiles) open(name string) (*os.File, error) {
	at, err := pathrs.OpenInRoot(t.root, name)
	if err != nil {
		return nil, t.named(name, err)
	}
	defer at.Close()
	info, err := at.Stat()
	if err != nil {
		return nil, t.named(name, err)
	}
	// A named pipe or a device in an image must not block nodegate, or act.
	if !info.Mode().IsRegular() && !info.IsDir() {
		return nil, fmt.Errorf("%s in %s is neither a file nor a directory", name, t.root)
	}
	f, err := pathrs.Reopen(at, os.O_RDONLY)
	return f, t.named(name, err)
}

// named puts the requested path into an error of a file handle.
func (t treeFiles) named(name string, err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return &fs.PathError{Op: pe.Op, Path: t.root + name, Err: pe.Err}
	}
	return err
}

func (t treeFiles) ReadFile(name string) ([]byte, error) {
	f, err := t.open(name)
	if err != nil {
		return nil, err
	}
	return readAll(f, maxFile)
}

func (t treeFiles) Exists(name string) (bool, error) {
	r, err := os.OpenRoot(t.root)
	if err != nil {
		return false, err
	}
	defer r.Close()
	return existed(r.Lstat(name[1:]))
}

func (t treeFiles) ReadDir(name string) ([]string, error) {
	f, err := t.open(name)
	if err != nil {
		return nil, err
	}
	return readNames(f)
}

func (t treeFiles) ReadLink(name string) (string, error) {
	r, err := os.OpenRoot(t.root)
	if err != nil {
		return "", err
	}
	defer r.Close()
	return r.Readlink(name[1:])
}

func (t treeFiles) Write(name string, _ []byte) error {
	return fmt.Errorf("writing %s in %s: %w", name, t.root, errTree)
}

// ReadFile reads a regular file of at most limit bytes. It refuses everything
// else without waiting for it: a named pipe, a device or a terminal in the place
// of a file must not block the caller.
func ReadFile(name string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file but %s", name, kindOfFile(info.Mode()))
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return readAll(f, limit)
}

func kindOfFile(mode fs.FileMode) string {
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

func readAll(f *os.File, limit int64) ([]byte, error) {
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("%s is larger than %d bytes", f.Name(), limit)
	}
	return b, err
}

func readNames(f *os.File) ([]string, error) {
	defer f.Close()
	names, err := f.Readdirnames(-1)
	sort.Strings(names)
	return names, err
}
