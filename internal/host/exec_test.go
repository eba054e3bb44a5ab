package host_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"nodegate/internal/assert"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/host/program"
	"nodegate/internal/require"
)

// TestRunChecked runs real programs: their status, their first line, and the reasons not to run one.
func TestRunChecked(t *testing.T) {
	hosttest.NeedRoot(t)
	dir := filepath.Join(t.TempDir(), "bin")
	require.NoError(t, os.Mkdir(dir, 0o755))
	write := func(name, script string) string {
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, []byte("#!/bin/sh\n"+script), 0o755))
		return file
	}
	says := write("says", "echo \"$1\"; echo more; echo wrong >&2; exit $2")
	h, err := host.Open("/")
	require.NoError(t, err)
	defer h.Close()
	for _, c := range []struct {
		line, status string
		want         host.Ran
	}{
		{"fine", "0", host.Ran{0, "fine"}},
		{"gpu 3 is gone", "1", host.Ran{1, "gpu 3 is gone"}},
		{"\x1b]0;owned\a\xff\u202e", "7", host.Ran{7, `\u001b]0;owned\u0007?\u202e`}},
		{"", "0", host.Ran{0, "more"}},
		{strings.Repeat("x", 5000), "1", host.Ran{1, strings.Repeat("x", 300) + "..."}},
	} {
		got, err := h.Exec(t.Context(), []string{says, c.line, c.status})
		assert.True(t, err == nil && got == c.want, "%q: %+v, %v", c.line, got, err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err = h.Exec(ctx, []string{write("hangs", "sleep 100 & sleep 100"), "secret"})
	assert.True(t, err != nil && strings.Contains(err.Error(), "did not finish") && !strings.Contains(err.Error(), "secret"),
		"a program that hangs: %v", err)
	_, err = h.Exec(t.Context(), []string{write("killed", "kill -9 $$")})
	assert.True(t, err != nil, "a killed program passes")
	_, err = h.Exec(t.Context(), []string{dir + "/none"})
	assert.True(t, err != nil, "a missing program passes")

	for what, open := range map[string]func(file string) error{
		"the file is writable":       func(file string) error { return os.Chmod(file, 0o775) },
		"the file is another user's": func(file string) error { return os.Chown(file, 65534, 0) },
		"the directory is writable":  func(string) error { return os.Chmod(dir, 0o777) },
		"the directory is another's": func(string) error { return os.Chown(dir, 65534, 0) },
		"a link leads to a writable one": func(file string) error {
			return os.Rename(file, file+"2") // replaced below
		},
	} {
		mark := filepath.Join(dir, "ran")
		file := write("open", "touch "+mark)
		require.NoError(t, open(file))
		if strings.HasPrefix(what, "a link") {
			require.NoError(t, os.Chmod(file+"2", 0o777))
			require.NoError(t, os.Symlink(file+"2", file))
		}
		_, err := h.Exec(t.Context(), []string{file})
		assert.ErrorContains(t, err, "was not run, because users other than root may write or replace it: run `ch", "%s", what)
		_, err = os.Stat(mark)
		assert.True(t, err != nil, "%s: it ran", what)
		_ = os.Remove(file)
		require.NoError(t, os.Chown(dir, 0, 0))
		require.NoError(t, os.Chmod(dir, 0o755))
	}

	recorded, _ := host.Record(h)
	tree, err := host.Open(t.TempDir())
	require.NoError(t, err)
	defer tree.Close()
	assert.True(t, recorded.Exec == nil && host.Replay(&host.Snapshot{Root: "/"}).Exec == nil && tree.Exec == nil,
		"a program of the policy can run from a recording, a replay or a tree")
}

// TestUnfitProgram judges real files of a tree.
func TestUnfitProgram(t *testing.T) {
	hosttest.NeedRoot(t)
	root := t.TempDir()
	h, err := host.Open(root)
	require.NoError(t, err)
	defer h.Close()
	for name, mode := range map[string]os.FileMode{"bin": 0o755, "tmp": 0o777, "sticky": os.ModeSticky | 0o777} {
		require.NoError(t, errors.Join(os.Mkdir(filepath.Join(root, name), 0o755), os.Chmod(filepath.Join(root, name), mode)))
	}
	for name, mode := range map[string]os.FileMode{
		"bin/fine": 0o755, "bin/data": 0o644, "bin/open": 0o757, "tmp/x": 0o755, "sticky/x": 0o755, "bin/other": 0o755,
	} {
		file := filepath.Join(root, name)
		require.NoError(t, errors.Join(os.WriteFile(file, nil, mode), os.Chmod(file, mode)))
	}
	require.NoError(t, os.Chown(filepath.Join(root, "bin/other"), 65534, 65534))
	for name, want := range map[string][2]string{
		"/bin/fine": {}, "/sticky/x": {},
		"/bin/none":  {"/bin/none does not exist", "install /bin/none, or remove it from the policy"},
		"/bin":       {"/bin is a directory", "name a program in the policy"},
		"/bin/data":  {"/bin/data is not executable", "run `chmod +x " + root + "/bin/data`"},
		"/bin/open":  {"/bin/open may be written or replaced by users other than root", "run `chmod go-w " + root + "/bin/open`"},
		"/bin/other": {"/bin/other may be written or replaced by users other than root", "run `chown root " + root + "/bin/other`"},
		"/tmp/x":     {"/tmp/x may be written or replaced by users other than root", "run `chmod go-w " + root + "/tmp`"},
	} {
		wrong, remedy, err := h.UnfitProgram(name)
		assert.True(t, err == nil && wrong == want[0] && remedy == want[1], "%s: %q, %q, %v", name, wrong, remedy, err)
	}
}

// TestInterpreter: a script is not run by an interpreter that users other than root may write.
func TestInterpreter(t *testing.T) {
	hosttest.NeedRoot(t)
	dir := t.TempDir()
	open, own := filepath.Join(dir, "open"), filepath.Join(dir, "own")
	for name, text := range map[string]string{open: "#!/bin/sh\necho it ran\n", own: "#!" + open + " -x\n"} {
		require.NoError(t, os.WriteFile(name, []byte(text), 0o755))
	}
	h, err := host.Open("/")
	require.NoError(t, err)
	defer h.Close()
	_, err = h.Exec(t.Context(), []string{own})
	assert.NoError(t, err, "root's interpreter")
	require.NoError(t, os.Chmod(open, 0o777))
	ran, err := h.Exec(t.Context(), []string{own})
	want := "may write or replace " + open + ", which executes it: run `chmod go-w"
	assert.True(t, err != nil && strings.Contains(err.Error(), want), "another user's interpreter: %+v, %v", ran, err)
	if wrong, _, err := h.UnfitProgram(own); err != nil || !strings.Contains(wrong, open) {
		t.Errorf("in an image: %q, %v", wrong, err)
	}
}

// TestChildrenDie: a child that left the session and the process group of a check's program does not survive it.
func TestChildrenDie(t *testing.T) {
	dir := t.TempDir()
	for _, script := range []string{
		"setsid sh -c 'echo $$ >PIDS; exec sleep 300' </dev/null >/dev/null 2>&1 &\nwhile [ ! -s PIDS ]; do sleep 0.01; done\nexit 0",
		"(setsid sh -c 'echo $$ >PIDS; exec sleep 300' &) >/dev/null 2>&1\nexec sleep 300",
	} {
		pids := filepath.Join(t.TempDir(), "pids")
		name := filepath.Join(dir, "program")
		require.NoError(t, os.WriteFile(name, []byte("#!/bin/sh\n"+strings.ReplaceAll(script, "PIDS", pids)+"\n"), 0o755))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		_, _, _ = program.Status(ctx, name)
		cancel()
		text := require.ReadFile(t, pids)
		pid := strings.TrimSpace(string(text))
		alive := func() string {
			state, err := os.ReadFile("/proc/" + pid + "/stat")
			if err != nil || strings.Contains(string(state), ") Z ") {
				return ""
			}
			return string(state)
		}
		for range 1000 { // a killed process dies when it runs next
			if alive() == "" {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		assert.Equal(t, alive(), "", "%s: process %s", script, pid)
	}
}
