package host

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/cyphar/filepath-securejoin/pathrs-lite"
	"golang.org/x/sys/unix"

	"nodegate/internal/host/file"
	"nodegate/internal/host/netns"
)

// maxFile limits the size of one file. A distribution kernel's modules.dep is smaller than 1 MiB; a
// full dump of kube-proxy's rules has 16 MiB.
const maxFile = 64 << 20

// maxCommand bounds the part of a command line that is read: a process decides how much of its memory that is (PR_SET_MM_MAP).
const maxCommand = 64 << 10

// machineFiles reads and writes the running machine's files.
type machineFiles struct{}

// ReadFile synthesises /proc/net/stat/nf_conntrack if the kernel does not provide that file.
func (machineFiles) ReadFile(name string) ([]byte, fs.FileMode, error) {
	if path.Base(name) == "cmdline" {
		f, err := file.Open(name)
		return readOpen(f, err, readStart, maxCommand)
	}
	found, mode, err := file.ReadMode(name, maxFile)
	if name != "/proc/net/stat/nf_conntrack" || !errors.Is(err, fs.ErrNotExist) {
		return found, mode, err
	}
	// Kernels without CONFIG_NF_CONNTRACK_PROCFS (Ubuntu's) report their counters over netlink
	// only. The query would load nf_conntrack, so it is skipped while the module is not loaded.
	if loaded, _ := existsResult(os.Lstat("/proc/sys/net/netfilter/nf_conntrack_count")); !loaded {
		return nil, 0, err
	}
	stats, asked := netns.ConntrackStats()
	if errors.Is(asked, errors.ErrUnsupported) {
		return nil, 0, err
	}
	return stats, 0o444, asked
}

// readStart reads the first most bytes and closes the file.
func readStart(f *os.File, most int64) ([]byte, error) {
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most))
}

// readOpen reads an open file.
func readOpen(f *os.File, err error, read func(*os.File, int64) ([]byte, error), most int64) ([]byte, fs.FileMode, error) {
	if err != nil {
		return nil, 0, err
	}
	mode := fs.FileMode(0)
	if info, err := f.Stat(); err == nil {
		mode = info.Mode()
	}
	text, err := read(f, most)
	return text, mode, err
}

func (machineFiles) ReadDir(name string) ([]string, error) { return file.ListDir(name) }

func (machineFiles) Exists(name string) (bool, error) { return existsResult(os.Lstat(name)) }

func existsResult(_ fs.FileInfo, err error) (bool, error) {
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// ReadLink identifies a process's network namespace by the inode of its net/dev, which needs no right; the link itself needs
// CAP_SYS_PTRACE.
func (machineFiles) ReadLink(name string) (string, error) {
	dir, is := strings.CutSuffix(name, "/ns/net")
	if !is {
		return os.Readlink(name)
	}
	var stat unix.Stat_t
	if err := unix.Stat(dir+"/net/dev", &stat); err != nil {
		return "", &fs.PathError{Op: "stat", Path: dir + "/net/dev", Err: err}
	}
	return fmt.Sprintf("net:[%d]", stat.Ino), nil
}

func (machineFiles) Head(name string) (file.Head, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return file.Head{}, err
	}
	return file.ReadHead(f)
}

func (machineFiles) Write(name string, data []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

func (machineFiles) Space(name string) (Space, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(name, &s); err != nil {
		return Space{}, &fs.PathError{Op: "statfs", Path: name, Err: err}
	}
	size := uint64(s.Bsize)
	return Space{s.Bfree * size, s.Bavail * size, s.Blocks * size, s.Ffree, s.Files}, nil
}

// treeFiles reads files below an untrusted root. It resolves every symbolic link as if the root
// were /, so no link leads out of the tree.
type treeFiles struct{ root string }

func (t treeFiles) open(name string) (*os.File, error) {
	at, err := pathrs.OpenInRoot(t.root, name)
	if err != nil {
		return nil, t.withPath(name, err)
	}
	defer at.Close()
	info, err := at.Stat()
	if err != nil {
		return nil, t.withPath(name, err)
	}
	// A named pipe or a device in an image must not block nodegate or trigger an action.
	if !info.Mode().IsRegular() && !info.IsDir() {
		return nil, fmt.Errorf("%s in %s is neither a file nor a directory", name, t.root)
	}
	f, err := pathrs.Reopen(at, os.O_RDONLY)
	return f, t.withPath(name, err)
}

// withPath puts the requested path into an error of a file handle.
func (t treeFiles) withPath(name string, err error) error {
	if errno, is := errors.AsType[unix.Errno](err); is {
		return &fs.PathError{Op: "open", Path: t.root + name, Err: errno}
	}
	return err
}

func (t treeFiles) ReadFile(name string) ([]byte, fs.FileMode, error) {
	f, err := t.open(name)
	return readOpen(f, err, file.Drain, maxFile)
}

func (t treeFiles) readShown(name string) ([]byte, error) {
	f, err := t.open(name)
	if err != nil {
		return nil, err
	}
	_, notLink := t.ReadLink(name)
	if err := file.Shown(f, t.root+name, notLink == nil); err != nil {
		f.Close()
		return nil, err
	}
	return file.Drain(f, maxFile)
}

func (t treeFiles) Exists(name string) (bool, error) {
	return existsResult(nil, t.inDir(name, func(dir int, base string) error {
		var stat unix.Stat_t
		return unix.Fstatat(dir, base, &stat, unix.AT_SYMLINK_NOFOLLOW)
	}))
}

func (t treeFiles) Head(name string) (file.Head, error) {
	f, err := t.open(name)
	if err != nil {
		return file.Head{}, err
	}
	return file.ReadHead(f)
}

func (t treeFiles) ReadDir(name string) ([]string, error) {
	f, err := t.open(name)
	if err != nil {
		return nil, err
	}
	return file.Names(f)
}

func (t treeFiles) ReadLink(name string) (to string, err error) {
	err = t.inDir(name, func(dir int, base string) error {
		b := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(dir, base, b)
		to = string(b[:max(n, 0)])
		return err
	})
	return to, err
}

// inDir calls do with an open directory and the base name of a file in it. do must not follow a
// link with that base name. Links in the path of the directory may be absolute, as in /lib ->
// /usr/lib.
func (t treeFiles) inDir(name string, do func(dir int, base string) error) error {
	name = path.Clean(name)
	dir, err := pathrs.OpenInRoot(t.root, path.Dir(name))
	if err != nil {
		return t.withPath(name, err)
	}
	defer dir.Close()
	return t.withPath(name, do(int(dir.Fd()), path.Base(name)))
}

func (t treeFiles) Write(name string, _ []byte) error {
	return fmt.Errorf("writing %s in %s: %w", name, t.root, errTree)
}

func (treeFiles) Space(string) (Space, error) { return Space{}, errTree }

// ReadFiles reads the files of a directory whose names want accepts, sorted by name, and refuses
// links to files that only some users may read. If an installer replaces the directory during the call, the result does not
// mix both: all files come from the old directory or all from the new one.
func (h *Host) ReadFiles(dir string, want func(name string) bool) ([]file.Named, error) {
	var open func() (*os.File, error)
	read := h.Files.ReadFile
	switch t := h.source().(type) {
	case machineFiles:
		open = func() (*os.File, error) { return file.OpenDir(dir) }
		read = func(name string) ([]byte, error) { return file.ReadShown(name, maxFile) }
	case treeFiles:
		open = func() (*os.File, error) { return t.open(dir) }
		read = t.readShown
	}
	return file.ReadDir(dir, open, h.Files.ReadDir, want, read)
}
