package main

import (
	"testing"

	"nodegate/internal/host/hosttest"
	"nodegate/units"
)

// TestRevertBesideWatch: a watch that corrects nothing, because the gate is switched
// off, is no reason to refuse: docs/guides/undo.md keeps it running.
func TestRevertBesideWatch(t *testing.T) {
	for what, c := range map[string]struct {
		active  string
		file    map[string]string
		refuses bool
	}{
		"watch runs":                      {"active", map[string]string{}, true},
		"watch runs, and is off":          {"active", map[string]string{units.Disabled: ""}, false},
		"watch is off since the boot":     {"active", map[string]string{"/proc/cmdline": "quiet nodegate=off"}, false},
		"watch has stopped, or never ran": {"inactive", map[string]string{}, false},
	} {
		m := &hosttest.Machine{Files: c.file, Units: map[string][2]string{units.WatchUnit: {c.active, "enabled"}}}
		if err := corrected(t.Context(), m.Host()); (err != nil) != c.refuses {
			t.Errorf("%s: %v", what, err)
		}
	}
}
