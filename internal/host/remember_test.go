package host_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"nodegate/internal/assert"
	"nodegate/internal/host"
	"nodegate/internal/require"
)

// TestRemember: a program is run again for its version only if its file or its arguments changed, or if it failed.
func TestRemember(t *testing.T) {
	h, err := host.Open("/")
	require.NoError(t, err)
	defer h.Close()
	h.Remember()
	dir := t.TempDir()
	kubelet, started := filepath.Join(dir, "kubelet"), filepath.Join(dir, "started")
	install := func(end string) {
		t.Helper()
		text := "#!/bin/sh\necho $* >> " + started + "\n" + end + "\n"
		require.NoError(t, os.WriteFile(kubelet+".new", []byte(text), 0o755))
		require.NoError(t, os.Rename(kubelet+".new", kubelet))
	}
	ask := func(flags ...string) string {
		said, err := host.Once(h).Kernel.Version(t.Context(), kubelet, flags...)
		if err != nil {
			return err.Error()
		}
		return said
	}
	for i, step := range []struct {
		end    string // of a new kubelet, "" for the old one
		flags  []string
		want   string
		starts int
	}{
		{"echo v1", nil, "v1", 1},
		{"", nil, "v1", 1},
		{"", []string{"--v=4"}, "v1", 2},
		{"", nil, "v1", 2},
		{"echo v2", nil, "v2", 3},
		{"echo unknown flag >&2; exit 1", nil, "unknown flag", 4},
		{"", nil, "unknown flag", 5},
	} {
		if step.end != "" {
			install(step.end)
		}
		got := ask(step.flags...)
		b := require.ReadFile(t, started)
		if starts := strings.Count(string(b), "\n"); !strings.Contains(got, step.want) || starts != step.starts {
			t.Errorf("step %d: %q after %d starts, want %q after %d", i, got, starts, step.want, step.starts)
		}
	}
}

// asked is a kernel on which the version of a program is the number of calls.
type asked struct {
	host.Kernel
	times int
}

func (c *asked) Version(context.Context, string, ...string) (string, error) {
	c.times++
	return strings.Repeat("I", c.times), nil
}

// TestRememberTenMinutes: a script may run a different program later although its own file is the same.
func TestRememberTenMinutes(t *testing.T) {
	program := filepath.Join(t.TempDir(), "kubelet")
	require.NoError(t, os.WriteFile(program, nil, 0o755))
	synctest.Test(t, func(t *testing.T) {
		h := &host.Host{Kernel: &asked{}}
		h.Remember()
		for i, step := range []struct {
			after time.Duration
			want  string
		}{
			{0, "I"}, {10*time.Minute - 1, "I"}, {1, "II"}, {9 * time.Minute, "II"}, {time.Minute, "III"},
		} {
			time.Sleep(step.after)
			said, err := h.Kernel.Version(t.Context(), program)
			assert.True(t, said == step.want && err == nil, "step %d: %q, %v, want %q", i, said, err, step.want)
		}
	})
}
