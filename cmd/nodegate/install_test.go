package main

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
	"nodegate/units"
)

// TestTellSystemd: the calls to systemd after install and uninstall; none if systemd does not run.
func TestTellSystemd(t *testing.T) {
	for _, c := range []struct {
		name    string
		booted  bool
		enable  []string
		want    []string
		warning string
	}{
		{"install", true, units.Started(), []string{"systemctl daemon-reload",
			"systemctl enable nodegate-apply.service nodegate-watch.service"},
			"still runs the previous version"},
		{"uninstall", true, nil, []string{"systemctl daemon-reload",
			"systemctl stop nodegate-watch.service", "systemctl stop nodegate-apply.service"}, ""},
		{"a container", false, units.Started(), nil, ""},
	} {
		m := &hosttest.Machine{Files: map[string]string{}, Units: map[string][2]string{units.WatchUnit: {"active", "enabled"}}}
		if c.booted {
			m.Files["/run/systemd/system/x"] = ""
		}
		var stderr bytes.Buffer
		assert.NoError(t, tellSystemd(t.Context(), m.Host(), c.enable, &stderr), "%s", c.name)
		assert.True(t, slices.Equal(m.Log, c.want) && strings.Contains(stderr.String(), c.warning) && (c.warning != "" || stderr.Len() <= 0),
			"%s: calls %q, printed %q", c.name, m.Log, stderr.String())
	}
}

// TestUntold: an install without changes still reloads systemd if systemd has not loaded the gate, and so does an uninstall if one of our
// units runs without its file. Units whose files exist are not touched.
func TestUntold(t *testing.T) {
	m := &hosttest.Machine{Files: map[string]string{"/run/systemd/system/x": ""}, Loaded: map[string]host.Loaded{"kubelet.service": {State: "loaded"}},
		Units: map[string][2]string{units.WatchUnit: {"active", ""}}}
	if !reloadPending(t.Context(), m.Host(), "kubelet.service", io.Discard) || reloadPending(t.Context(), m.Host(), "k3s.service", io.Discard) {
		t.Error("systemd has not loaded the gate: want a reload")
	}
	assert.True(t, unitsLeft(t.Context(), m.Host(), io.Discard), "watch runs without its file: want a reload")
	m.Files["/etc/systemd/system/"+units.WatchUnit] = ""
	assert.True(t, !unitsLeft(t.Context(), m.Host(), io.Discard), "watch runs with its file: want no reload")
	m.Units = nil
	delete(m.Files, "/etc/systemd/system/"+units.WatchUnit)
	assert.True(t, !unitsLeft(t.Context(), m.Host(), io.Discard), "nothing runs: want no reload")
	delete(m.Files, "/run/systemd/system/x")
	assert.True(t, !reloadPending(t.Context(), m.Host(), "kubelet.service", io.Discard), "systemd does not run: want no reload")
}
