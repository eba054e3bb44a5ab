package file_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/host/file"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

// TestWhoMayReplace makes one change to a safe path, and names the places by which another user could then replace the file.
func TestWhoMayReplace(t *testing.T) {
	hosttest.NeedRoot(t)
	for _, c := range []struct {
		what   string
		change func(in func(string) string) error
		want   string
	}{
		{"safe", func(func(string) string) error { return nil }, ""},
		{"the file", func(in func(string) string) error { return os.Chmod(in("a/b/f"), 0o646) }, "chmod go-w a/b/f"},
		{"a directory above it", func(in func(string) string) error { return os.Chmod(in("a"), 0o777) }, "chmod go-w a"},
		{"another user's directory above it", func(in func(string) string) error { return os.Chown(in("a"), 65534, 0) }, "chown root a"},
		{"a sticky directory, root's entry", func(in func(string) string) error { return os.Chmod(in("a"), 0o777|os.ModeSticky) }, ""},
		{"a sticky directory, another user's entry", func(in func(string) string) error {
			return both(os.Chmod(in("a"), 0o777|os.ModeSticky), os.Chown(in("a/b"), 65534, 0))
		}, "chown root a/b"},
		{"a sticky directory itself", func(in func(string) string) error {
			return both(os.Remove(in("a/b/f")), os.Mkdir(in("a/b/f"), 0o755), os.Chmod(in("a/b/f"), 0o777|os.ModeSticky))
		}, "chmod go-w a/b/f"},
		{"the target of a link", func(in func(string) string) error {
			return both(os.Mkdir(in("c"), 0o755), os.Rename(in("a/b/f"), in("c/f")), os.Symlink("../../c/f", in("a/b/f")), os.Chmod(in("c"), 0o777))
		}, "chmod go-w c"},
		{"the middle of two links", func(in func(string) string) error {
			return both(os.Mkdir(in("c"), 0o755), os.Rename(in("a/b/f"), in("f")), os.Symlink("../f", in("c/f")),
				os.Symlink("../../c/f", in("a/b/f")), os.Chmod(in("c"), 0o777))
		}, "chmod go-w c"},
		{"a link above it", func(in func(string) string) error {
			return both(os.Mkdir(in("c"), 0o755), os.Rename(in("a/b"), in("c/b")), os.Symlink("/c/b", in("a/b")), os.Chmod(in("c"), 0o777))
		}, "chmod go-w c"},
		{"another user's link in a sticky directory", func(in func(string) string) error {
			return both(os.Rename(in("a/b/f"), in("f")), os.Symlink("../../f", in("a/b/f")), os.Lchown(in("a/b/f"), 65534, 0),
				os.Chmod(in("a/b"), 0o777|os.ModeSticky))
		}, "chown -h root a/b/f"},
		{"a loop of links", func(in func(string) string) error { return both(os.Remove(in("a/b/f")), os.Symlink("f", in("a/b/f"))) },
			"too many levels of symbolic links"},
	} {
		root := t.TempDir()
		in := func(name string) string { return filepath.Join(root, name) }
		require.NoError(t, both(os.MkdirAll(in("a/b"), 0o755), os.WriteFile(in("a/b/f"), nil, 0o644), c.change(in)))
		found, err := file.WhoMayReplace(root, in("a/b/f"))
		var got []string
		for _, o := range found {
			got = append(got, o.Mend+" "+strings.TrimPrefix(o.Place, root+"/"))
		}
		if err != nil {
			got = append(got, err.Error())
		}
		s := strings.Join(got, ", ")
		assert.True(t, strings.HasSuffix(s, c.want) && (c.want != "" || s == ""), "%s: got %q, want %q", c.what, s, c.want)
	}
}

func both(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return fmt.Errorf("the test's own change: %w", err)
		}
	}
	return nil
}
