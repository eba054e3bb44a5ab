package file

import (
	"io/fs"

	"golang.org/x/sys/unix"
)

// Read reads a regular file of at most limit bytes. It refuses all other types without blocking: a
// named pipe, a device or a terminal in place of a file must not block the caller. It does not use
// os.File, because the runtime's poller treats every file below /proc/sys as one that may block,
// which costs two more system calls and the wake-up of a thread.
func Read(name string, limit int64) ([]byte, error) {
	text, _, err := ReadMode(name, limit)
	return text, err
}

// ReadMode is Read, and returns the file's permissions.
func ReadMode(name string, limit int64) (text []byte, mode fs.FileMode, err error) {
	var fd int
	err = uninterrupted(func() (err error) {
		fd, err = unix.Open(name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return nil, 0, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written
	var stat unix.Stat_t
	if err := uninterrupted(func() error { return unix.Fstat(fd, &stat) }); err != nil {
		return nil, 0, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	if err := regular(modeOf(stat.Mode), name); err != nil {
		return nil, 0, err
	}
	if stat.Size > limit { // refuse a sparse file of 300 GB without reading it
		return nil, 0, TooLarge(name, limit)
	}
	b := make([]byte, 0, max(512, stat.Size+1)) // the kernel reports size 0 for files that it generates
	for {
		var n int
		err := uninterrupted(func() (err error) { n, err = unix.Read(fd, b[len(b):cap(b)]); return err })
		if err != nil {
			return b, 0, &fs.PathError{Op: "read", Path: name, Err: err}
		}
		b = b[:len(b)+n]
		switch {
		case int64(len(b)) > limit:
			return nil, 0, TooLarge(name, limit)
		case n == 0:
			return b, fs.FileMode(stat.Mode & 0o777), nil
		case len(b) == cap(b):
			b = append(b, 0)[:len(b)]
		}
	}
}

// uninterrupted repeats a system call that a signal interrupts.
func uninterrupted(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

func modeOf(mode uint32) fs.FileMode {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return 0
	case unix.S_IFDIR:
		return fs.ModeDir
	case unix.S_IFIFO:
		return fs.ModeNamedPipe
	case unix.S_IFSOCK:
		return fs.ModeSocket
	}
	return fs.ModeDevice
}
