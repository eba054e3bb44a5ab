package kubelet_test

import (
	"testing"
	"time"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
)

func TestCrashLoop(t *testing.T) {
	node := func(c host.Crash, ago time.Duration) *hosttest.Machine {
		c.Since = time.Now().Add(-ago)
		m := checkstest.Node(nil, nil)
		m.Crashes = map[string]host.Crash{"kubelet.service": c}
		return m
	}
	const right = "pass\nwant: no restart loop\ngot: no restart loop"
	loops := func(state, exit string) string {
		return `
fail
want: no restart loop
got: keeps restarting: ` + exit + `
evidence: kubelet.service: ` + state + `, restarted 20 times, last ` + exit + `
evidence: journalctl -u kubelet.service: E1121 run.go:72] "command failed" err="x"
remedy: read kubelet's last messages: run ` + "`journalctl -b -u kubelet _TRANSPORT=stdout | tail`"
	}
	const line = `E1121 run.go:72] "command failed" err="x"`
	checkstest.RunOne(t, "kubelet.crash-loop", checks.Run, []checkstest.Case{
		{What: "it waits for its next start",
			Node: node(host.Crash{Restarts: 20, Active: "activating", Exit: "exit status 1", Line: line}, time.Hour),
			Want: loops("activating", "exit status 1")},
		{What: "it runs for a moment", Node: node(host.Crash{Restarts: 20, Active: "active", Exit: "exit status 1", Line: line}, time.Second),
			Want: loops("active", "exit status 1")},
		{What: "the exit status is unknown", Node: node(host.Crash{Restarts: 20, Active: "activating", Line: line}, time.Second),
			Want: loops("activating", "unknown exit status")},
		{What: "systemd has given up", Node: node(host.Crash{Restarts: 20, Active: "failed", Exit: "exit status 1", Line: line}, time.Hour),
			Want: loops("failed", "exit status 1")},
		{What: "it has been up for an hour", Node: node(host.Crash{Restarts: 20, Active: "active"}, time.Hour), Want: right},
		{What: "it is up, and the clock was set back", Node: node(host.Crash{Restarts: 20, Active: "active"}, -time.Hour), Want: right},
		{What: "it died once", Node: node(host.Crash{Restarts: 1, Active: "active", Exit: "signal 9"}, time.Second), Want: right},
		{What: "stopped manually", Node: node(host.Crash{Restarts: 5, Active: "inactive"}, time.Second), Want: right},
		{What: "the gate holds it", Node: node(host.Crash{Restarts: 4, Held: 4, Active: "activating"}, time.Second),
			Want: right + "\nevidence: kubelet.service: activating, restarted 4 times; the gate or another ExecStartPre= held all recent " +
				"starts"},
		{What: "the gate held it, and it runs", Node: node(host.Crash{Restarts: 4, Held: 4, Active: "active"}, time.Second),
			Want: right + "\nevidence: kubelet.service: active, restarted 4 times; the gate or another ExecStartPre= held all recent " +
				"starts"},
		{What: "the gate holds it, after it died once", Node: node(host.Crash{Restarts: 4, Held: 3, Active: "activating", Exit: "signal 9"}, 0),
			Want: right + "\nevidence: kubelet.service: activating, restarted 4 times; the gate or another ExecStartPre= held all recent " +
				"starts but one"},
		{What: "the gate holds it, after it died twice", Node: node(host.Crash{Restarts: 4, Held: 2, Active: "activating", Exit: "signal 9"}, 0),
			Want: right + "\nevidence: kubelet.service: activating, restarted 4 times; the gate or another ExecStartPre= held all recent " +
				"starts but 2"},
		{What: "it died before the gate was installed",
			Node: node(host.Crash{Restarts: 6, Earlier: 5, Active: "activating", Exit: "exit status 1", Line: line}, time.Second),
			Want: right + "\nevidence: kubelet.service: activating, restarted 6 times, 5 of them before its unit file or a drop-in changed"},
		{What: "it died before the gate was installed, and goes on",
			Node: node(host.Crash{Restarts: 20, Earlier: 17, Active: "activating", Exit: "exit status 1", Line: line}, time.Second),
			Want: loops("activating", "exit status 1")},
		{What: "the gate held it, and now it exits", Node: node(host.Crash{Restarts: 20, Held: 17, Active: "active", Exit: "exit status 1", Line: line},
			time.Second), Want: loops("active", "exit status 1")},
		{What: "no systemd", Node: checkstest.Node(nil, nil), Want: right},
	})
}
