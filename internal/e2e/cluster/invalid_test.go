//go:build cluster

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/require"
)

const beLiberal = "net.netfilter.nf_conntrack_tcp_be_liberal"

// TestInvalid sends a segment outside the window through a real Service, from an endpoint on another node to a client on this one. If
// nothing stops the segment, it arrives untranslated, the client's kernel answers with RST, and the connection is reset. Before the
// first packet, nodegate check must report which protection is missing.
func TestInvalid(t *testing.T) {
	c, binary := startPlane(t, Newest, ForRules()), buildNodegate(t)
	policies := t.TempDir()
	looks, sets := filepath.Join(policies, "looks.hcl"), filepath.Join(policies, "sets.hcl")
	for file, text := range map[string]string{
		looks: `check "conntrack.invalid" {}` + "\n" + `check "conntrack.be-liberal-changed" {}`,
		sets:  `sysctl "` + beLiberal + `" { value = 1 }`,
	} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	}
	lax := way{"nothing stops it", "", untranslated, "be_liberal=0, nftables mode drops none", ""}
	dropped := way{"as kube-proxy wrote it", "", stopped, "INVALID dropped", ""}
	bypassed := way{"another program accepts all before", "$1 -I FORWARD -j ACCEPT", untranslated,
		"be_liberal=0, KUBE-FORWARD not reached", ""}
	changed := way{"be_liberal was 1 when kube-proxy started", "RESTART", untranslated, "be_liberal=0, no DROP of INVALID",
		"be_liberal=0 now, not 0 when kube-proxy started"}
	applied := way{"nodegate apply", binary + " apply --policy " + sets, translated, "be_liberal=1", ""}
	for b, ways := range map[Backend][]way{
		IptablesNFT: {dropped, bypassed, changed, applied}, IptablesLegacy: {dropped, bypassed, changed, applied}, NFTables: {lax, applied},
	} {
		t.Run(string(b), func(t *testing.T) {
			f := newStrayFlow(t, c, b)
			for _, w := range ways {
				t.Run(w.name, func(t *testing.T) {
					f.prepareState(t, w.prepare)
					f.checkFindings(t, w, binary, looks)
					f.tryConnection(t, w.arrives)
				})
			}
		})
	}
}

// way is a state of the node, with the fate of the stray segment and nodegate's findings in that state.
type way struct {
	name, prepare string
	arrives       string
	found         string // the result of conntrack.invalid
	changed       string // the result of conntrack.be-liberal-changed if it fails
}

const (
	stopped      = "stopped"
	translated   = "translated"
	untranslated = "untranslated"
)

// prepareState brings the node into a state. Otherwise it has kube-proxy's rules and be_liberal=0.
func (f strayFlow) prepareState(t *testing.T, script string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), settleTime)
	defer cancel()
	undo := "while $1 -D FORWARD -j ACCEPT 2>/dev/null; do :; done; sysctl -qw " + beLiberal + "=0"
	gone := func() error { return f.node.Shell(ctx, "! $1-save -t filter | grep INVALID", string(f.node.Backend)) }
	steps := []func() error{func() error { return f.node.Shell(ctx, script, string(f.node.Backend)) }}
	if script == "RESTART" {
		steps = []func() error{
			func() error { return f.node.Shell(ctx, "sysctl -qw "+beLiberal+"=1") },
			func() error { return f.node.SignalProxy(syscall.SIGKILL) },
			func() error { return f.node.StartProxy(ctx) },
			func() error { return Until(ctx, gone) },
			func() error { return f.node.Shell(ctx, "sysctl -qw "+beLiberal+"=0") },
		}
	}
	for _, step := range steps {
		require.NoError(t, step())
	}
	t.Cleanup(func() {
		assert.NoError(t, f.node.Shell(context.Background(), undo, string(f.node.Backend)))
	})
}

// checkFindings compares the results of nodegate check with the expected ones.
func (f strayFlow) checkFindings(t *testing.T, w way, binary, policy string) {
	t.Helper()
	out, err := f.node.Output(t.Context(), binary, "check", "--stage", "run", "--format", "json", "--policy", policy)
	var failed *exec.ExitError
	require.True(t, err == nil || errors.As(err, &failed), "%v", err)
	var r struct {
		Results []struct{ Name, Verdict, Got string }
	}
	err = json.Unmarshal([]byte(out), &r)
	require.True(t, err == nil && len(r.Results) == 2, "nodegate check: %v\n%s", err, out)
	for _, res := range r.Results {
		got, wantGot, want := res.Got, w.found, "pass"
		if w.arrives == untranslated {
			want = map[bool]string{true: "warn", false: "fail"}[f.node.Backend == NFTables] // which never drops INVALID packets
		}
		if res.Name == "conntrack.be-liberal-changed" {
			if wantGot = w.changed; wantGot == "" {
				assert.True(t, res.Verdict != "warn" && res.Verdict != "fail", "%s: %s", res.Name, got)
				continue
			}
		}
		assert.True(t, res.Verdict == want && got == wantGot, "%s: %s: %q, want %s: %q", res.Name, res.Verdict, got, want, wantGot)
	}
}

// tryConnection opens a connection, sends the stray segment, and checks how it arrives.
func (f strayFlow) tryConnection(t *testing.T, arrives string) {
	t.Helper()
	if err := errors.Join(f.node.Shell(t.Context(), countSegments, "prerouting", f.service.Ready[0], "ct state invalid", "ct state established"),
		f.client.Shell(t.Context(), countSegments, "input", "10.0.0.0/8", "ip saddr "+f.service.Ready[0], "ip saddr "+f.service.ClusterIP)); err != nil {
		t.Fatal(err)
	}
	here, there := f.connect(t)
	require.NoError(t, exchange(here, there), "before the stray segment")
	require.NoError(t, f.sendStray(there))
	type seen struct{ node, client [2]int } // {bad, good}
	want := map[string]seen{
		stopped: {node: [2]int{1, 0}}, translated: {[2]int{0, 1}, [2]int{0, 1}}, untranslated: {[2]int{1, 0}, [2]int{1, 0}},
	}[arrives]
	waitUntil(t, "stray segment at the node", func() (bool, error) { return readCounters(t, f.node.Space) != [2]int{}, nil })
	err := exchange(here, there)
	got := (seen{readCounters(t, f.node.Space), readCounters(t, f.client)})
	assert.True(t, got == want, "the stray segment: %+v, want %+v: %s", got, want, arrives)
	if reset := errors.Is(err, syscall.ECONNRESET); reset != (arrives == untranslated) || !reset && err != nil {
		t.Errorf("the connection after a stray segment that arrives %s: %v", arrives, err)
	}
}
