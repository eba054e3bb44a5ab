package file

import (
	"bytes"
	"errors"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/require"
)

// TestRead: regular files are read completely, and other types are refused at once.
func TestRead(t *testing.T) {
	dir := t.TempDir() + "/"
	long := bytes.Repeat([]byte("0123456789\n"), 5000)
	write := func(name string, content []byte) {
		require.NoError(t, os.WriteFile(dir+name, content, 0o600))
	}
	write("long", long)
	write("empty", nil)
	write("sparse", nil)
	socket, err := net.Listen("unix", dir+"socket")
	require.NoError(t, errors.Join(err, os.Truncate(dir+"sparse", 300<<30), syscall.Mkfifo(dir+"pipe", 0o600)))
	t.Cleanup(func() { _ = socket.Close() })
	const limit = 1 << 20
	for name, wrong := range map[string]string{
		"long": "", "empty": "",
		"sparse": "is larger than 1048576 bytes", "pipe": "is a named pipe, not a regular file", "": "is a directory, not a regular file",
		"socket": "no such device or address", "/dev/null": "is a device, not a regular file", "none": "no such file or directory",
		"a\x00": "invalid argument",
	} {
		if !strings.HasPrefix(name, "/") {
			name = dir + name
		}
		got, err := Read(name, limit)
		if wrong == "" {
			want, _ := os.ReadFile(name)
			assert.True(t, err == nil && bytes.Equal(got, want), "%s: %d bytes, %v; want %d", name, len(got), err, len(want))
			continue
		}
		assert.True(t, err != nil && strings.Contains(err.Error(), wrong) && strings.Contains(err.Error(), name),
			"%q: %v, want: %s", name, err, wrong)
	}
	_, err = Read(dir+"none", limit)
	assert.True(t, errors.Is(err, fs.ErrNotExist), "%v", err)
	_, err = Read(dir+"long", int64(len(long)))
	assert.NoError(t, err)
	_, err = Read(dir+"long", int64(len(long)-1))
	assert.True(t, err != nil, "one byte too many was read")
}

// TestReadProc: the kernel does not report the size of the files that it generates; the limit still applies.
func TestReadProc(t *testing.T) {
	const name = "/proc/self/limits" // about 1,300 bytes
	want, err := os.ReadFile(name)
	require.NoError(t, err)
	if got, err := Read(name, 1<<20); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
	_, err = Read(name, 1000)
	assert.True(t, err != nil, "it read more than the limit")
}
