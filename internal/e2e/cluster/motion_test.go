//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"nodegate/internal/assert"
	"nodegate/internal/require"
)

// settleTime bounds the time that kube-proxy and audit together need to agree after a change. Emulated or busy machines need most of it.
const settleTime = 3 * time.Minute

// TestChurn changes endpoints all the time, as every cluster does, with a healthy kube-proxy: any finding of audit is false. Then, while
// changes continue, one endpoint in the rules of a Service is replaced: the next audit must report that Service and no other.
func TestChurn(t *testing.T) {
	c, binary := startPlane(t, Newest, ForRules()), buildNodegate(t)
	churn, victim := addServices(t, c)
	older, err := Build(t.Context(), CacheDir(repositoryRoot(t)), Older, []string{"kube-proxy"})
	require.NoError(t, err)
	for _, of := range []struct {
		name, bin string
		backend   Backend
	}{
		{string(IptablesNFT), "", IptablesNFT}, {string(IptablesLegacy), "", IptablesLegacy}, {string(NFTables), "", NFTables},
		{"older-" + string(IptablesNFT), older, IptablesNFT}, {"older-" + string(NFTables), older, NFTables},
	} {
		t.Run(of.name, func(t *testing.T) {
			c.ProxyBin = of.bin
			n := addNode(t, c, of.backend)
			untilAudit(t, n, binary, "before any change", "pass")
			duringChurn(t, churn, func() { auditHealthy(t, n, binary, churn, churnTime(30*time.Second)) })
			untilAudit(t, n, binary, "after the last change", "pass")
			duringChurn(t, churn, func() {
				for range repetitions(20) {
					auditStale(t, n, binary, victim)
				}
			})
		})
	}
}

// addServices makes the Services that change, and one that does not.
func addServices(t *testing.T, c *ControlPlane) (churn *Churn, victim *Service) {
	t.Helper()
	churn = Usual()
	require.NoError(t, churn.Prepare(t.Context(), c))
	victim, err := c.AddService(t.Context(), "victim", "TCP")
	require.NoError(t, err)
	victim.replaceEndpoints()
	require.NoError(t, victim.Update(t.Context()))
	return churn, victim
}

// duringChurn calls do while endpoints change.
func duringChurn(t testing.TB, churn *Churn, do func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- churn.Run(ctx) }()
	defer func() {
		cancel()
		assert.NoError(t, <-ended)
	}()
	do()
}

// auditHealthy runs audits for the duration d. There must be no findings.
func auditHealthy(t *testing.T, n *ProxyNode, binary string, churn *Churn, d time.Duration) {
	t.Helper()
	var tally Tally
	before := churn.Changes()
	for end := time.Now().Add(d); time.Now().Before(end); {
		a, err := n.Audit(t.Context(), binary)
		require.NoError(t, err)
		tally.Add(a)
	}
	changes := churn.Changes() - before
	t.Logf("%d audits during %d changes: %s", tally.Audits(), changes, &tally)
	assert.True(t, tally.Audits() != 0 && changes != 0 && tally.Verdicts["pass"] != 0,
		"no audit or no change happened, so nothing was tested")
	for name, text := range tally.Accused {
		t.Errorf("the first false %s:\n%s", name, text)
	}
}

// auditStale replaces one endpoint in a Service's rules without kube-proxy's knowledge. One audit must find it, and report no other
// Service.
func auditStale(t *testing.T, n *ProxyNode, binary string, victim *Service) {
	t.Helper()
	chains, err := n.SaveChains(t.Context(), "default/"+victim.Name)
	require.NoError(t, err)
	gone := strings.ReplaceAll(chains, victim.Ready[0], "10.245.255.1")
	require.True(t, gone != chains, "%s is not in the rules of %s:\n%s", victim.Ready[0], victim.Name, chains)
	require.NoError(t, n.PutBack(t.Context(), gone))
	began := time.Now()
	a, err := n.Audit(t.Context(), binary)
	require.NoError(t, err)
	named := false
	for _, r := range a.Results {
		for _, e := range r.Evidence {
			seen := e.Source + " " + e.Text
			named = named || r.Verdict == "fail" && strings.Contains(seen, victim.Name)
			assert.True(t, r.Verdict != "fail" || !strings.Contains(seen, "churn-"), "%s reports a healthy Service: %s", r.Name, seen)
		}
	}
	assert.True(t, named, "a stale endpoint was not found:\n%s\nthe rules:\n%s", a.Said(), gone)
	t.Logf("a stale endpoint was found after %.1f s: %s", time.Since(began).Seconds(), strings.Join(a.Accusations(), ", "))
	require.NoError(t, n.PutBack(t.Context(), chains))
	untilAudit(t, n, binary, "put right again", "pass")
}

// TestStale cuts kube-proxy off from the API in three ways while endpoints change. Its rules become stale: audit must report that, and
// pass again once kube-proxy is connected.
func TestStale(t *testing.T) {
	c, binary := startPlane(t, Newest, ForRules()), buildNodegate(t)
	for _, b := range Backends() {
		t.Run(string(b), func(t *testing.T) {
			t.Parallel() // the test mostly waits
			s, err := c.AddService(t.Context(), "web-"+strings.ToLower(string(b)), "TCP")
			require.NoError(t, err)
			replace := func(t *testing.T) {
				t.Helper()
				s.replaceEndpoints()
				require.NoError(t, s.Update(t.Context()))
			}
			replace(t)
			n := addNode(t, c, b)
			untilAudit(t, n, binary, "before", "pass")
			ways := []struct {
				name      string
				cut, mend func() error
				answers   bool // whether kube-proxy's healthz answers while it is cut off
			}{
				{"cut off", func() error { return n.CutProxy(t.Context()) }, func() error { return n.MendProxy(t.Context()) }, true},
				{"stopped", func() error { return n.SignalProxy(syscall.SIGSTOP) }, func() error { return n.SignalProxy(syscall.SIGCONT) }, false},
				{"killed", func() error { return n.SignalProxy(syscall.SIGKILL) }, func() error { return n.StartProxy(t.Context()) }, false},
			}
			for _, way := range slices.Repeat(ways, repetitions(7)) {
				t.Logf("--- %s", way.name)
				require.NoError(t, way.cut())
				replace(t)
				began := time.Now()
				a := untilAudit(t, n, binary, way.name, "fail")
				t.Logf("found after %.1f s: %s", time.Since(began).Seconds(), strings.Join(a.Accusations(), ", "))
				_, err := n.Healthz(t.Context())
				assert.True(t, (err == nil) == way.answers, "%s: kube-proxy's healthz: %v", way.name, err)
				require.NoError(t, way.mend())
				began = time.Now()
				untilAudit(t, n, binary, way.name+", and back", "pass")
				t.Logf("passes again after %.1f s", time.Since(began).Seconds())
			}
		})
	}
}

func addNode(t testing.TB, c *ControlPlane, b Backend) *ProxyNode {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), settleTime)
	defer cancel()
	name := "node-" + string(b)
	if c.ProxyBin != "" {
		name += "-older"
	}
	n, err := c.AddProxyNode(ctx, name, b)
	require.NoError(t, err)
	t.Cleanup(n.Close)
	return n
}

// waitUntil waits until is returns true; what names the condition for the error message.
func waitUntil(t testing.TB, what string, is func() (bool, error)) {
	t.Helper()
	waitWithin(t, settleTime, what, is)
}

func waitWithin(t testing.TB, limit time.Duration, what string, is func() (bool, error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	err := Until(ctx, func() error {
		ok, err := is()
		if err == nil && !ok {
			err = fmt.Errorf("still waiting for %s", what)
		}
		return err
	})
	require.NoError(t, err)
}

// untilAudit waits for a verdict and returns the audit that had it.
func untilAudit(t *testing.T, n *ProxyNode, binary, when, want string) (a Audit) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), settleTime)
	defer cancel()
	err := Until(ctx, func() (err error) {
		if a, err = n.Audit(t.Context(), binary); err == nil && a.Verdict != want {
			err = fmt.Errorf("the verdict of audit is %s, want %s", a.Verdict, want)
		}
		return err
	})
	if err != nil {
		rules, _ := n.Rules(t.Context())
		t.Fatalf("%s: %v\n%s\nthe rules:\n%s", when, err, a.Said(), firstLines(rules, 60))
	}
	return a
}

// firstLines returns the first n lines of text.
func firstLines(text string, n int) string {
	lines := strings.SplitAfterN(text, "\n", n+1)
	return strings.Join(lines[:min(n, len(lines))], "")
}
