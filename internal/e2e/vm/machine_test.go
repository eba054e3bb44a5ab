//go:build vm

package vm

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"nodegate/internal/e2e/qemu"
	"nodegate/internal/require"
)

// TestMachine tests the foundation of the scenarios: if a machine cannot boot, the error contains its console; a boot finds the files
// that the previous boot wrote; no QEMU is left after Kill, Reboot or PowerOff.
func TestMachine(t *testing.T) {
	t.Parallel()
	r := newRunner(t)
	tree := filepath.Join(r.Scratch, "tree")
	require.NoError(t, r.Base.Clone(t.Context(), tree))
	m, err := r.Base.MakeMachine(t.Context(), tree, r.Scratch)
	require.NoError(t, err)
	if _, err := m.Boot(t.Context(), "init=/bin/false panic=-1"); err == nil || !strings.Contains(err.Error(), "Attempted to kill init") {
		t.Fatalf("a machine without init: %v", err)
	}
	boot := func() *Guest {
		t.Helper()
		g, err := m.Boot(t.Context(), "")
		require.NoError(t, err)
		t.Cleanup(g.Kill)
		return g
	}
	gone := func(g *Guest) {
		t.Helper()
		select {
		case <-g.Ended():
		case <-time.After(10 * time.Second):
			t.Fatal("QEMU still runs")
		}
		if err := g.Signal(0); err == nil {
			t.Error("the process still exists")
		}
	}

	g := boot()
	if out, err := g.Run(t.Context(), "echo kept >/var/kept; echo heard >/dev/console"); err != nil || out.Code != 0 {
		t.Fatalf("%+v, %v", out, err)
	}
	if console := g.Console(); !strings.Contains(console, "heard\n") {
		t.Errorf("the console:\n%s", qemu.Tail(console, 5))
	}
	require.NoError(t, g.Reboot(t.Context()))
	gone(g)

	g = boot()
	if out, err := g.Run(t.Context(), "cat /var/kept"); err != nil || out.Stdout != "kept\n" {
		t.Errorf("after a reboot: %+v, %v", out, err)
	}
	require.NoError(t, g.PowerOff(t.Context()))
	gone(g)

	g = boot()
	g.Kill()
	gone(g)
	if _, err := g.Run(t.Context(), "true"); err == nil {
		t.Error("a killed machine answered")
	}
}
