package main

import (
	"context"
	"errors"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
	"nodegate/units"
)

// watchState is a systemd that reports one state of watch, within a time limit.
type watchState struct {
	host.Units
	active string
	err    error
}

func (w watchState) State(ctx context.Context, unit string) (active, file string, err error) {
	if _, limited := ctx.Deadline(); !limited || unit != units.WatchUnit {
		return "", "", errors.New("asked about " + unit + ", perhaps for ever")
	}
	return w.active, "enabled", w.err
}

// TestRevertBesideWatch: revert works while watch runs but corrects nothing because of break-glass, as in docs/guides/undo.md. A watch
// that starts, reloads its policy or stops counts as running, and so does one with an unknown state.
func TestRevertBesideWatch(t *testing.T) {
	for what, c := range map[string]struct {
		active  string
		err     error
		file    map[string]string
		refuses bool
	}{
		"watch runs":                      {"active", nil, map[string]string{}, true},
		"watch starts":                    {"activating", nil, map[string]string{}, true},
		"watch reads its policy again":    {"reloading", nil, map[string]string{}, true},
		"watch ends":                      {"deactivating", nil, map[string]string{}, true},
		"watch runs, and is off":          {"active", nil, map[string]string{units.BreakGlassFile: ""}, false},
		"watch starts, and is off":        {"activating", nil, map[string]string{units.BreakGlassFile: ""}, false},
		"watch is off since the boot":     {"active", nil, map[string]string{"/proc/cmdline": "quiet nodegate=off"}, false},
		"watch has stopped, or never ran": {"inactive", nil, map[string]string{}, false},
		"watch has failed":                {"failed", nil, map[string]string{}, false},
		"systemd does not answer":         {"", errors.New("no answer"), map[string]string{}, true},
		"systemd does not answer, off":    {"", errors.New("no answer"), map[string]string{units.BreakGlassFile: ""}, false},
	} {
		h := (&hosttest.Machine{Files: c.file}).Host()
		h.Units = watchState{h.Units, c.active, c.err}
		err := checkWatchStopped(t.Context(), h)
		assert.True(t, (err != nil) == c.refuses && (!c.refuses || c.err == nil || errors.Is(err, c.err)), "%s: %v", what, err)
	}
}
