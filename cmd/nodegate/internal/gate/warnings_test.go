package gate

import (
	"bytes"
	"strings"
	"testing"

	"nodegate/checks"
	"nodegate/internal/assert"
	"nodegate/internal/verdict"
)

// TestWarnings: the gate logs one line for each warning, and none for a result that was announced, passes or follows from another.
func TestWarnings(t *testing.T) {
	t.Setenv("JOURNAL_STREAM", "")
	var out bytes.Buffer
	g := Gate{Voice: Voice{Stderr: &out}}
	state := checks.State{Want: "1", Got: "0", Remedy: "run `sysctl -w a.b=1`"}
	symptom := state
	symptom.Cause = "module.a"
	g.warn(checks.Outcome{Results: []checks.Result{
		{Name: "sysctl.a.b", Verdict: verdict.Warn, State: state}, {Name: "kubelet.exit", Verdict: verdict.Warn, State: state, Announce: true},
		{Name: "sysctl.a.c", Verdict: verdict.Pass, State: state}, {Name: "sysctl.a.d", Verdict: verdict.Warn, State: symptom},
	}})
	const want = "nodegate: warning: sysctl.a.b: want 1, got 0 (); run `sysctl -w a.b=1`\n"
	assert.Equal(t, out.String(), want)
}

// TestUnreadable: a disk that does not return the policy in time is no mistake of the policy.
func TestUnreadable(t *testing.T) {
	for mistake, want := range map[string]string{
		"a.hcl:1: Unknown block":                         "; correct the policy, or run `touch /off`",
		"reading /etc/nodegate has not returned for 10s": "; `dmesg` shows why the disk is slow or hangs, and systemd retries, or run `touch /off`",
	} {
		var out bytes.Buffer
		g := Gate{Voice: Voice{Stderr: &out}, BreakGlassFile: "/off"}
		g.Unreadable(mistake, "")
		assert.Equal(t, strings.TrimSpace(out.String()), "nodegate: held: the policy cannot be read: "+mistake+want)
	}
}
