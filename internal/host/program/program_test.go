package program

import (
	"cmp"
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"nodegate/internal/assert"
	"nodegate/internal/require"
)

// TestFlood: a program that prints endlessly is killed before it exhausts the memory, on either output.
func TestFlood(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err := Run(ctx, "sh", "-c", "exec yes")
	assert.ErrorContains(t, err, "it printed more than 16777216 bytes and was killed", "standard output")
	_, err = Run(ctx, "sh", "-c", "yes | head -c 20000000 >&2; exit 1")
	assert.True(t, err != nil && len(err.Error()) <= 2*maxStderr, "standard error: %.200v", err)
}

// TestChildHoldsOutput: a child process that keeps its parent's output open does not delay the caller beyond the end of the context.
func TestChildHoldsOutput(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	child := func(_ string, r io.Reader) error { _, err := io.Copy(io.Discard, r); return err }
	done := make(chan error, 1)
	go func() { done <- Stream(ctx, child, "sh", "-c", "sleep 20 & exit 0") }()
	select {
	case err := <-done:
		assert.ErrorContains(t, err, "was killed before it finished", "Stream")
	case <-time.After(15 * time.Second):
		t.Error("the call waits for the child")
	}
}

// TestStatusLeavesNothing: a directory for a cgroup does not stay, also where /sys/fs/cgroup is no cgroup because v2 is mounted below it.
func TestStatusLeavesNothing(t *testing.T) {
	_, _, err := Status(t.Context(), "true")
	require.NoError(t, err)
	var left []string
	for range 100 { // another test may be about to remove its own
		left = nil
		dirs, _ := filepath.Glob(cmp.Or(ownCgroup(), cgroupRoot) + "/nodegate-*")
		for _, dir := range dirs {
			if _, err := os.Stat(dir + "/cgroup.procs"); err != nil {
				left = append(left, dir)
			}
		}
		if left == nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Errorf("left behind, and no cgroups: %q", left)
}
