package kubelet_test

import (
	"strings"
	"testing"
	"time"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
)

func TestExit(t *testing.T) {
	node := func(c host.Crash, ago time.Duration) *hosttest.Machine {
		c.Since = time.Now().Add(-ago)
		m := checkstest.Node(nil, nil)
		m.Crashes = map[string]host.Crash{"kubelet.service": c}
		return m
	}
	const right = "pass\nwant: kubelet keeps running\ngot: kubelet keeps running"
	const down = "skipped\nskipped: kubelet.service does not run"
	const held = "skipped\nskipped: activating, restarted 4 times; the gate or another ExecStartPre= held all recent starts"
	const line = `E1121 12:00:00.000000       1 run.go:72] "command failed" err="failed to run Kubelet: an unknown reason"`
	named := func(verdict, got, state, exit string) string {
		return "\n" + verdict + `
want: kubelet keeps running
got: kubelet ` + got + ": " + exit + `: failed to run Kubelet: an unknown reason
evidence: kubelet.service: ` + state + `, last ` + exit + `
evidence: journalctl -u kubelet.service: ` + line + `
remedy: read kubelet's last messages: run ` + "`journalctl -b -u kubelet _TRANSPORT=stdout | tail`"
	}
	loops := func(state, exit string) string {
		return named("fail", "keeps exiting", state+", restarted 20 times", exit)
	}
	once := func(state string, restarts string) string {
		return named("warn", "exited", state+", restarted "+restarts+" times", "exit status 1")
	}
	waiting := withUnit("--config=/none --kubeconfig=/none --bootstrap-kubeconfig=/none", nil)
	waiting.Crashes = map[string]host.Crash{"kubelet.service": {Restarts: 20, Active: "activating", Exit: "exit status 1", Line: line}}
	checkstest.RunOne(t, "kubelet.exit", checks.Run, []checkstest.Case{
		{What: "it waits for its next start",
			Node: node(host.Crash{Restarts: 20, Active: "activating", Exit: "exit status 1", Line: line}, time.Hour),
			Want: loops("activating", "exit status 1")},
		{What: "it runs for a moment", Node: node(host.Crash{Restarts: 20, Active: "active", Exit: "exit status 1", Line: line}, time.Second),
			Want: loops("active", "exit status 1")},
		{What: "the exit status is unknown", Node: node(host.Crash{Restarts: 20, Active: "activating", Line: line}, time.Second),
			Want: loops("activating", "unknown exit status")},
		{What: "systemd has given up", Node: node(host.Crash{Restarts: 20, Active: "failed", Exit: "exit status 1", Line: line}, time.Hour),
			Want: loops("failed", "exit status 1")},
		{What: "it has been up for an hour", Node: node(host.Crash{Restarts: 20, Active: "active", Exit: "exit status 1"}, time.Hour), Want: right},
		{What: "it is up, and the clock was set back", Node: node(host.Crash{Restarts: 20, Active: "active"}, -time.Hour), Want: right},
		{What: "it exited once", Node: node(host.Crash{Restarts: 1, Active: "activating", Exit: "exit status 1", Line: line}, time.Second),
			Want: once("activating", "1")},
		{What: "it exited, and systemd does not restart it", Node: node(host.Crash{Active: "failed", Exit: "exit status 1", Line: line}, time.Hour),
			Want: once("failed", "0")},
		{What: "the gate held it after it exited", Node: node(host.Crash{Restarts: 4, Held: 3, Active: "activating", Exit: "exit status 1", Line: line}, 0),
			Want: once("activating", "4")},
		{What: "stopped manually", Node: node(host.Crash{Restarts: 5, Active: "inactive", Exit: "exit status 1"}, time.Second), Want: down},
		{What: "its first start waits in the gate", Node: node(host.Crash{Active: "activating"}, 0), Want: "skipped\nskipped: kubelet has not run yet"},
		{What: "it has just started", Node: node(host.Crash{Active: "active"}, time.Second), Want: right},
		{What: "the gate holds it", Node: node(host.Crash{Restarts: 4, Held: 4, Active: "activating"}, time.Second), Want: held},
		{What: "it may have been held: the journal cannot be read", Node: node(host.Crash{Restarts: 2, Active: "activating"}, time.Second),
			Want: strings.Replace(held, "4 times", "2 times", 1)},
		{What: "it exited before the gate was installed",
			Node: node(host.Crash{Restarts: 6, Earlier: 6, Active: "activating", Exit: "exit status 1", Line: line}, time.Second),
			Want: "skipped\nskipped: activating, restarted 6 times, 6 of them before its unit file or a drop-in changed"},
		{What: "it exited before the gate was installed, and goes on",
			Node: node(host.Crash{Restarts: 20, Earlier: 17, Active: "activating", Exit: "exit status 1", Line: line}, time.Second),
			Want: loops("activating", "exit status 1")},
		{What: "the gate held it, and now it exits", Node: node(host.Crash{Restarts: 20, Held: 17, Active: "active", Exit: "exit status 1", Line: line},
			time.Second), Want: loops("active", "exit status 1")},
		{What: "kubeadm has not joined", Node: waiting, Want: "skipped\nskipped: this node has not joined a cluster: kubeadm join writes kubelet's files"},
		{What: "no systemd", Node: checkstest.Node(nil, nil), Want: down},
	})
	// At kubelet's start it warns, so that it does not hold.
	checkstest.RunOne(t, "kubelet.exit", checks.Boot, []checkstest.Case{
		{What: "it exits again and again",
			Node: node(host.Crash{Restarts: 20, Active: "activating", Exit: "exit status 1", Line: line}, time.Second),
			Want: strings.Replace(loops("activating", "exit status 1"), "fail\n", "warn\n", 1)},
	})
}

// TestExitWords has lines of kubelet's log, each with the error and the remedy that the check reports.
func TestExitWords(t *testing.T) {
	for _, c := range []struct{ line, exit, got, remedy string }{
		{`E1121 12:00:00.000000       1 run.go:72] "command failed" err="failed to parse kubelet flag: unknown flag: --network-plugin"`, "exit status 1",
			"failed to parse kubelet flag: unknown flag: --network-plugin", "remove the flag"},
		{`E1121 12:00:00.000000       1 kubelet.go:1850] "Failed to start ContainerManager" err="[memorymanager] the expected machine state is ` +
			`different from the real one"`, "exit status 1",
			"Failed to start ContainerManager: [memorymanager] the expected machine state is different from the real one", "drain the node"},
		{`E1121 12:00:00.000000       1 run.go:72] "command failed" err=< failed to load kubelet config file, path: /x: no kind >`, "exit status 1",
			"failed to load kubelet config file, path: /x: no kind", "correct the file"},
		{`{"ts":1.5,"caller":"kubelet/run.go:72","msg":"command failed","err":"invalid configuration: cgroup [\"x\"] has some missing paths: /x"}`,
			"exit status 1", `invalid configuration: cgroup ["x"] has some missing paths: /x`, "create the cgroup"},
		{"panic: assignment to entry in nil map", "exit status 2", "panic: assignment to entry in nil map", "read kubelet's last messages"},
		{"I1121 12:00:00.000000       1 kubelet.go:1] its last line", "signal 9", "its last line", "find out what killed kubelet"},
	} {
		m := checkstest.Node(nil, nil)
		m.Crashes = map[string]host.Crash{"kubelet.service": {Restarts: 1, Active: "activating", Exit: c.exit, Line: c.line}}
		res := checkstest.On(t.Context(), t, m.Host(), checks.Boot, "kubelet.exit", "")
		if want := "kubelet exited: " + c.exit + ": " + c.got; res.State.Got != want || !strings.HasPrefix(res.State.Remedy, c.remedy) {
			t.Errorf("%s:\ngot  %s; %s\nwant %s; %s", c.line, res.State.Got, res.State.Remedy, want, c.remedy)
		}
	}
}
