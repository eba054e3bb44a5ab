package host_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"nodegate/internal/assert"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

// TestCredential runs real programs as credential plugins, and checks that plugins which other users may write are refused.
func TestCredential(t *testing.T) {
	hosttest.NeedRoot(t)
	const good = "#!/bin/sh\necho $A$1\n"
	for _, c := range []struct {
		what, script string
		spoil        func(dir string) error
		want         string // in the output or in the error
	}{
		{"runs", good, nil, "bc"},
		{"fails", "#!/bin/sh\necho secret; echo no role >&2; exit 3\n", nil, "exit status 3; its error output is not shown"},
		{"prints too much", "#!/bin/sh\nhead -c 2000000 /dev/zero\n", nil, "more than 1048576 bytes"},
		{"its kubeconfig is writable by the group", good, func(dir string) error { return os.Chmod(dir+"/config", 0o664) },
			"/config, and root would run their program; run `chmod go-w"},
		{"another user's kubeconfig", good, func(dir string) error { return os.Chown(dir+"/config", 65534, 0) }, "run `chown root"},
		{"another user's plugin", good, func(dir string) error { return os.Chown(dir+"/bin/plugin", 65534, 0) }, "/plugin, and root would"},
		{"its directory is writable by all", good, func(dir string) error { return os.Chmod(dir+"/bin", 0o777) }, "/bin, and root would"},
		{"a link to another user's plugin", good, func(dir string) error {
			theirs := dir + "/theirs"
			if err := os.Mkdir(theirs, 0o755); err != nil {
				return err
			}
			if err := os.Rename(dir+"/bin/plugin", theirs+"/real"); err != nil {
				return err
			}
			if err := os.Symlink(theirs+"/real", dir+"/bin/plugin"); err != nil {
				return err
			}
			return os.Chown(theirs, 65534, 0)
		}, "/theirs, and root would"},
		{"no plugin", good, func(dir string) error { return os.Remove(dir + "/bin/plugin") }, "no such file"},
	} {
		dir := t.TempDir()
		write := func(name, text string, mode os.FileMode) {
			t.Helper()
			require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
			require.NoError(t, os.WriteFile(name, []byte(text), mode))
		}
		write(dir+"/config", "", 0o644)
		write(dir+"/bin/plugin", c.script, 0o755)
		if c.spoil != nil {
			require.NoError(t, c.spoil(dir))
		}
		out, err := host.Credential(t.Context(), dir+"/config", dir+"/bin/plugin", []string{"c"}, []string{"A=b"})
		got := strings.TrimSpace(string(out))
		if err != nil {
			got = err.Error()
		}
		assert.True(t, (err == nil) == (c.what == "runs") && strings.Contains(got, c.want) && !strings.Contains(got, "secret"),
			"%s: got %.200q, %v; want %q", c.what, got, err, c.want)
	}
}

// TestCredentialEnds: when its time is over, a plugin ends together with the processes that it has started.
func TestCredentialEnds(t *testing.T) {
	hosttest.NeedRoot(t)
	dir := t.TempDir()
	pid := dir + "/pid"
	require.NoError(t, os.WriteFile(dir+"/plugin", []byte("#!/bin/sh\nsleep 600 &\necho $! >"+pid+"\nwait\n"), 0o755))
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for range 1000 {
			if text, err := os.ReadFile(pid); err == nil && strings.HasSuffix(string(text), "\n") {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		cancel()
	}()
	_, err := host.Credential(ctx, dir+"/plugin", dir+"/plugin", nil, nil)
	assert.ErrorContains(t, err, "was killed: context canceled")
	text, err := os.ReadFile(pid)
	require.NoError(t, err)
	stat := "/proc/" + strings.TrimSpace(string(text)) + "/stat"
	for i := 0; ; i++ {
		state, err := os.ReadFile(stat)
		if err != nil || strings.Contains(string(state), ") Z ") {
			break // gone, or a zombie that its new parent has not reaped
		}
		require.True(t, i != 500, "the plugin's child is still running: %s", state)
		time.Sleep(10 * time.Millisecond)
	}
}
