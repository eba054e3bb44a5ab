package file_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"nodegate/internal/assert"
	"nodegate/internal/host/file"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

const nobody = 65534

// TestOutput writes as root to u/f, below a directory of another user, and to links of root outside it. SECURITY.md: output.
func TestOutput(t *testing.T) {
	hosttest.NeedRoot(t)
	for _, c := range []struct {
		what, name string
		change     func(in func(string) string) error
		wrong      string // of the error; "" if the text must be in to
		to         string
	}{
		{"missing", "u/f", nil, "", "u/f"},
		{"there", "u/f", func(in func(string) string) error { return os.WriteFile(in("u/f"), []byte("old"), 0o640) }, "", "u/f"},
		{"a link", "u/f", func(in func(string) string) error { return os.Symlink("../etc/x", in("u/f")) }, "u/f is a symbolic link", ""},
		{"a link to nothing", "u/f", func(in func(string) string) error { return os.Symlink("../etc/new", in("u/f")) }, "u/f is a symbolic link", ""},
		{"a link above it", "u/d/f", func(in func(string) string) error { return os.Symlink("../etc", in("u/d")) }, "u/d is a symbolic link", ""},
		{"a directory above it", "u/d/f", func(in func(string) string) error { return os.Mkdir(in("u/d"), 0o755) }, "", "u/d/f"},
		{"another user's link in a sticky directory", "tmp/f", func(in func(string) string) error {
			return both(os.Symlink("../etc/x", in("tmp/f")), os.Lchown(in("tmp/f"), nobody, 0))
		}, "tmp/f is a symbolic link", ""},
		{"another user's directory in a sticky directory", "tmp/d/f", func(in func(string) string) error {
			return both(os.Mkdir(in("tmp/d"), 0o755), os.Chown(in("tmp/d"), nobody, 0), os.Symlink("../../etc/x", in("tmp/d/f")))
		}, "tmp/d/f is a symbolic link", ""},
		{"root's link in a sticky directory", "tmp/f", func(in func(string) string) error { return os.Symlink("../etc/x", in("tmp/f")) }, "", "etc/x"},
		{"root's link", "f", func(in func(string) string) error { return os.Symlink("etc/x", in("f")) }, "", "etc/x"},
		{"root's link to their directory", "d/f", func(in func(string) string) error {
			return both(os.Symlink("u", in("d")), os.Symlink("../etc/x", in("u/f")))
		}, "u/f is a symbolic link", ""},
		{"above their directory", "u/../f", nil, "", "f"},
		{"no directory", "u/none/f", nil, "u/none/f: no such file", ""},
		{"a directory", "u", nil, "u: is a directory", ""},
		{"a directory to be", "new/", nil, "new/: is a directory", ""},
	} {
		dir := t.TempDir()
		in := func(name string) string { return dir + "/" + name }
		require.NoError(t, both(os.MkdirAll(in("u"), 0o755), os.Chown(in("u"), nobody, 0), os.Mkdir(in("etc"), 0o755), os.Mkdir(in("tmp"), 0o755),
			os.Chmod(in("tmp"), 0o777|os.ModeSticky), os.WriteFile(in("etc/x"), []byte("old"), 0o640)))
		if c.change != nil {
			require.NoError(t, c.change(in))
		}
		err := file.Output(in(c.name), []byte("new"), 0o644)
		got := strings.ReplaceAll(errorText(err), dir+"/", "")
		assert.True(t, strings.Contains(got, c.wrong) && (c.wrong == "") == (err == nil), "%s: %v, want %q", c.what, err, c.wrong)
		for _, name := range []string{c.to, "etc/x"} {
			text, _ := os.ReadFile(in(name))
			want := map[bool]string{true: "new", false: "old"}[name == c.to]
			assert.True(t, name == "" || string(text) == want, "%s: %s has %q, want %q", c.what, name, text, want)
		}
		_, err = os.Lstat(in("etc/new"))
		assert.True(t, err != nil, "%s: a link made etc/new", c.what)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestOutputRace: their directory and a link to root's change places all the time, and so do their file and a link. None leads out.
func TestOutputRace(t *testing.T) {
	hosttest.NeedRoot(t)
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, both(os.MkdirAll(in("u/d"), 0o755), os.Mkdir(in("etc"), 0o755), os.Symlink("../etc", in("u/link")),
		os.Symlink("../../etc/x", in("u/d/link")), os.WriteFile(in("etc/x"), []byte("old"), 0o644),
		os.Chown(in("u"), nobody, 0)))
	if unix.Mknod(in("u/d/f"), unix.S_IFCHR|0o666, 1<<8|3) != nil { // a copy of /dev/null
		require.NoError(t, os.WriteFile(in("u/d/f"), nil, 0o644))
	}
	stop, stopped := make(chan bool), make(chan bool)
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			for _, pair := range [][2]string{{"u/d", "u/link"}, {"u/d/f", "u/d/link"}} {
				_ = unix.Renameat2(unix.AT_FDCWD, in(pair[0]), unix.AT_FDCWD, in(pair[1]), unix.RENAME_EXCHANGE)
			}
		}
	}()
	written := 0
	for range 2000 {
		if file.OutputTree(in("u/d/f"), []byte("new"), 0o644) == nil {
			written++
		}
	}
	close(stop)
	<-stopped
	names, err := os.ReadDir(in("etc"))
	text, readErr := os.ReadFile(in("etc/x"))
	assert.True(t, err == nil && readErr == nil && len(names) == 1 && string(text) == "old" && written != 0,
		"%v, %q, %v, %v; %d of 2000 written", names, text, err, readErr, written)
}
