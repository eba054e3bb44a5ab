//go:build torture

package inject

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// Call is a system call that a thread is about to make.
type Call struct {
	Number uint64
	Root   int // pid of the program
	tid    int
	args   [6]uint64
}

// pathCalls maps calls to the argument numbers of their directory (-1 for none) and their path.
var pathCalls = map[uint64][2]int{
	unix.SYS_OPENAT: {0, 1}, unix.SYS_OPEN: {-1, 0}, unix.SYS_NEWFSTATAT: {0, 1}, unix.SYS_STATX: {0, 1}, unix.SYS_READLINKAT: {0, 1},
	unix.SYS_FACCESSAT: {0, 1}, unix.SYS_FACCESSAT2: {0, 1}, unix.SYS_EXECVE: {-1, 0},
	unix.SYS_MKDIRAT: {0, 1}, unix.SYS_UNLINKAT: {0, 1}, unix.SYS_RENAMEAT: {0, 1}, unix.SYS_RENAMEAT2: {0, 1}, unix.SYS_LINKAT: {2, 3},
	unix.SYS_SYMLINKAT: {1, 2}, unix.SYS_FCHMODAT: {0, 1}, unix.SYS_FCHMODAT2: {0, 1}, unix.SYS_FCHOWNAT: {0, 1}, unix.SYS_UTIMENSAT: {0, 1},
}

// fileCalls are the calls that change an open file, whose descriptor is their first argument.
var fileCalls = map[uint64]bool{unix.SYS_WRITE: true, unix.SYS_PWRITE64: true, unix.SYS_WRITEV: true, unix.SYS_FTRUNCATE: true,
	unix.SYS_FALLOCATE: true, unix.SYS_FSYNC: true, unix.SYS_FDATASYNC: true, unix.SYS_FCHMOD: true, unix.SYS_FCHOWN: true,
	unix.SYS_COPY_FILE_RANGE: true, unix.SYS_SENDFILE: true}

// readCalls are the calls with a path that change nothing.
var readCalls = map[uint64]bool{unix.SYS_NEWFSTATAT: true, unix.SYS_STATX: true, unix.SYS_READLINKAT: true, unix.SYS_FACCESSAT: true,
	unix.SYS_FACCESSAT2: true, unix.SYS_EXECVE: true}

// Path returns the absolute path that the call names or writes to, or "".
func (c Call) Path() string {
	if fileCalls[c.Number] {
		fd := c.args[0]
		if c.Number == unix.SYS_COPY_FILE_RANGE {
			fd = c.args[2]
		}
		name, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", c.tid, fd))
		return name
	}
	at, ok := pathCalls[c.Number]
	if !ok {
		return ""
	}
	name := c.readString(c.args[at[1]])
	if strings.HasPrefix(name, "/") {
		return path.Clean(name)
	}
	dir := "cwd"
	if at[0] >= 0 && int32(c.args[at[0]]) != unix.AT_FDCWD {
		dir = fmt.Sprintf("fd/%d", c.args[at[0]])
	}
	below, _ := os.Readlink(fmt.Sprintf("/proc/%d/%s", c.tid, dir))
	return path.Join(below, name)
}

// Writes reports whether the call changes files.
func (c Call) Writes() bool {
	const changes = unix.O_WRONLY | unix.O_RDWR | unix.O_CREAT | unix.O_TRUNC
	switch {
	case c.Number == unix.SYS_OPENAT:
		return c.args[2]&changes != 0
	case c.Number == unix.SYS_OPEN:
		return c.args[1]&changes != 0
	case fileCalls[c.Number]:
		return true
	}
	_, ok := pathCalls[c.Number]
	return ok && !readCalls[c.Number]
}

// Opens reports whether the call opens a file only to read it.
func (c Call) Opens() bool {
	return (c.Number == unix.SYS_OPENAT || c.Number == unix.SYS_OPEN) && !c.Writes() && c.args[2]&unix.O_DIRECTORY == 0
}

// IsWrite reports whether the call writes more than one byte, and so can be torn.
func (c Call) IsWrite() bool { return c.Number == unix.SYS_WRITE && c.args[2] > 1 }

// Own reports whether the program itself makes the call, not one of its children.
func (c Call) Own() bool {
	_, err := os.Stat(fmt.Sprintf("/proc/%d/task/%d", c.Root, c.tid))
	return err == nil
}

// Receiver returns the path of the socket to which a message goes; "" if the call sends none.
func (c Call) Receiver() string {
	message := c.read(c.args[1], 8)
	if c.Number != unix.SYS_SENDMSG || len(message) < 8 {
		return ""
	}
	const path = 2                                                  // in struct sockaddr_un
	return c.readString(binary.NativeEndian.Uint64(message) + path) // struct msghdr begins with the address
}

// readString reads a string from the program's memory.
func (c Call) readString(at uint64) string {
	b := c.read(at, 4096)
	if end := bytes.IndexByte(b, 0); end >= 0 {
		return string(b[:end])
	}
	return ""
}

// read reads at most so many bytes from the program's memory.
func (c Call) read(at uint64, most int) []byte {
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", c.tid))
	if err != nil {
		return nil
	}
	defer mem.Close()
	b := make([]byte, most)
	n, _ := mem.ReadAt(b, int64(at))
	return b[:max(n, 0)]
}

// setPath overwrites the path that the call names.
func (c Call) setPath(p string) {
	at := c.args[pathCalls[c.Number][1]]
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", c.tid), os.O_WRONLY, 0)
	if err != nil {
		return
	}
	defer mem.Close()
	_, _ = mem.WriteAt(append([]byte(p), 0), int64(at))
}

// Needs reports whether the call needs space on the disk.
func (c Call) Needs() bool {
	switch c.Number {
	case unix.SYS_WRITE, unix.SYS_PWRITE64, unix.SYS_WRITEV, unix.SYS_FALLOCATE, unix.SYS_MKDIRAT, unix.SYS_LINKAT, unix.SYS_SYMLINKAT:
		return true
	case unix.SYS_OPENAT:
		return c.args[2]&unix.O_CREAT != 0
	}
	return false
}
