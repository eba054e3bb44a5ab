package report

import (
	"strings"
	"testing"
	"time"

	"nodegate/internal/assert"
	"nodegate/internal/require"
)

const watched = `{
  "apiVersion": "nodegate/v1", "kind": "Watch",
  "since": "2026-01-01T10:00:00Z", "intervalNs": 30000000000, "rounds": 240, "lastRound": "2026-01-01T11:59:50Z",
  "policyError": "node.hcl:1:1: Unsupported block type", "linkEvents": 12, "resyncs": 0, "links": 2,
  "corrected": {"sysctl.net.ipv4.ip_forward": 5, "link.vxlan": 1},
  "last": [
    {"time": "2026-01-01T11:58:00Z", "name": "sysctl.net.ipv4.ip_forward", "was": "0", "now": "1"},
    {"time": "2026-01-01T11:57:00Z", "name": "sysctl.net.ipv4.ip_forward", "was": "0", "now": "1"},
    {"time": "2026-01-01T11:00:00Z", "name": "link.vxlan", "link": "flannel.1", "new": true,
     "was": "tx-checksum-ip-generic=on", "now": "tx-checksum-ip-generic=off"}
  ],
  "fights": [{"name": "sysctl.net.ipv4.ip_forward", "since": "2026-01-01T11:58:00Z", "next": "2026-01-01T12:01:00Z",
    "writer": "no known program writes it"}],
  "report": {
    "apiVersion": "nodegate/v1", "kind": "Report", "node": {"name": "node17"}, "verdict": "fail", "time": "2026-01-01T11:59:48Z",
    "results": [
      {"name": "sysctl.kernel.panic", "verdict": "fail", "want": "10", "got": "0"},
      {"name": "module.overlay", "verdict": "unknown", "error": "reading /proc/modules: permission denied"},
      {"name": "sysctl.net.x", "verdict": "fail", "because": "module.x"},
      {"name": "sysctl.net.ipv4.ip_forward", "verdict": "pass"}
    ]
  }
}`

func TestStatus(t *testing.T) {
	s, err := DecodeWatch([]byte(watched))
	require.NoError(t, err)
	show := func(now time.Time) []string {
		var b strings.Builder
		require.NoError(t, s.Text(&b, now, Plain, "nodegate-watch.service"))
		return strings.Split(strings.TrimSpace(b.String()), "\n")
	}
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	want := []string{
		"policy  watch                       node.hcl:1:1: Unsupported block type; the last good policy is in use",
		"fight   sysctl.net.ipv4.ip_forward  for 2m0s, next correction at 12:01:00",
		"        no known program writes it",
		"fail    sysctl.kernel.panic         want 10, got 0",
		"unknown module.overlay              reading /proc/modules: permission denied",
		"fixed   sysctl.net.ipv4.ip_forward  0 -> 1, 2m0s ago, 5 times in all",
		"set     link.vxlan of flannel.1     tx-checksum-ip-generic=on -> tx-checksum-ip-generic=off, 1h0m0s ago",
		"total   link.vxlan                  once corrected",
		"nodegate: fail  (node17, 4 requirements, 2 new links set, watching for 2h0m0s, last round 10s ago)",
	}
	assert.Diff(t, show(noon), want)
	late := show(noon.Add(time.Hour))[0]
	if late != "unknown watch                       the last round was 1h0m10s ago; a round is due every 30s; "+
		"run `systemctl status nodegate-watch.service`" {
		t.Errorf("a watch that is late: %s", late)
	}
	for _, c := range []struct {
		passed, now int // seconds before noon
		superseded  bool
	}{{13, 0, false}, {11, 0, true}, {9, 0, true}, {-5, 0, false}, {9, -3600, false}} {
		d := s
		d.Supersede(noon.Add(time.Duration(-c.passed)*time.Second), noon.Add(time.Duration(-c.now)*time.Second))
		var b strings.Builder
		require.NoError(t, d.Text(&b, noon, Plain, "nodegate-watch.service"))
		assert.True(t, strings.Contains(b.String(), "fail ") != c.superseded, "%+v: %s", c, b.String())
	}
}
