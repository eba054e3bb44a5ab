//go:build cluster

package cluster

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"nodegate/internal/assert"
	"nodegate/internal/require"
)

// proxyFault is a fault of a live kube-proxy that its rules show only after a change.
type proxyFault struct {
	backend Backend
	finding string                 // what watch must report
	answers bool                   // whether healthz returns 200 during the fault
	cause   func(*ProxyNode) error // before the change
	mend    func(*ProxyNode) error
}

// TestWatchReports causes three faults of a live kube-proxy, each on a node with another backend: its watch is dead, its watch fails,
// its sync hangs. An endpoint changes, watch with an audit block names the fault, and passes once it is repaired.
func TestWatchReports(t *testing.T) {
	c, binary := startPlane(t, Newest, ForRules()), buildNodegate(t)
	faults := map[string]proxyFault{
		"dead watch": {NFTables, "kubeproxy.watch.dead", true,
			func(n *ProxyNode) error { return n.CutProxy(t.Context()) },
			func(n *ProxyNode) error { return n.MendProxy(t.Context()) }},
		"failing watch": {IptablesNFT, "kubeproxy.watch.failing", true,
			func(n *ProxyNode) error { return n.refuseProxy(t) },
			func(n *ProxyNode) error { return n.MendProxy(t.Context()) }},
		// Not kubeproxy.sync.stuck: each change that another subtest makes counts as the last one that waits.
		"hanging sync": {IptablesLegacy, "kubeproxy.sync.unhealthy", false,
			func(n *ProxyNode) error { return n.blockRestore() },
			func(n *ProxyNode) error { return n.unblockRestore(t) }},
	}
	for what, f := range faults {
		t.Run(what, func(t *testing.T) {
			t.Parallel() // the test mostly waits
			s, err := c.AddService(t.Context(), "web-"+strings.ToLower(string(f.backend)), "TCP")
			require.NoError(t, err)
			replace := func() {
				t.Helper()
				s.replaceEndpoints()
				require.NoError(t, s.Update(t.Context()))
			}
			replace()
			n := addNode(t, c, f.backend)
			k := startKept(t, n, binary, "1m")
			k.untilVerdict("before", "pass")
			require.NoError(t, f.cause(n))
			replace()
			time.Sleep(2 * time.Second) // a connection that ends by its own packets lets one change pass
			replace()
			began := time.Now()
			var seen []string
			waitUntil(t, f.finding, func() (bool, error) {
				found, err := k.findings()
				if now := strings.Join(found, " "); err == nil && (len(seen) == 0 || seen[len(seen)-1] != now) {
					seen = append(seen, now)
				}
				return slices.Contains(found, f.finding) && k.verdict() == "fail", err
			})
			t.Logf("reported after %.1f s; one after the other: %q", time.Since(began).Seconds(), seen)
			_, err = n.Healthz(t.Context())
			assert.True(t, (err == nil) == f.answers, "kube-proxy's healthz: %v", err)
			require.NoError(t, f.mend(n))
			replace()
			began = time.Now()
			k.untilVerdict("and back", "pass")
			t.Logf("passes again after %.1f s; %s", time.Since(began).Seconds(), k.cost())
		})
	}
}

// findings returns the names in the evidence of the audit's failure.
func (k *kept) findings() ([]string, error) {
	answer, err := k.http.Get("http://127.0.0.1:9758/check?full")
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	var a Audit
	if err := json.NewDecoder(answer.Body).Decode(&a); err != nil {
		return nil, err
	}
	var names []string
	for _, r := range a.Results {
		for _, e := range r.Evidence {
			if r.Name == "kubeproxy.audit" {
				names = append(names, e.Source)
			}
		}
	}
	return names, nil
}

// TestAPIAway: the API server refuses everybody on a node for two minutes (LONG=1: five), and an endpoint changes meanwhile. watch with an
// audit block must not accuse kube-proxy, neither then nor after the return.
func TestAPIAway(t *testing.T) {
	t.Parallel() // the test mostly waits
	c, binary := startPlane(t, Newest, ForRules()), buildNodegate(t)
	s, err := c.AddService(t.Context(), "away", "TCP")
	require.NoError(t, err)
	s.replaceEndpoints()
	require.NoError(t, s.Update(t.Context()))
	n := addNode(t, c, IptablesNFT)
	k := startKept(t, n, binary, "1m")
	k.untilVerdict("before", "pass")
	away := 2 * time.Minute
	if os.Getenv("LONG") != "" {
		away = 5 * time.Minute
	}
	never := func(d time.Duration) {
		t.Helper()
		for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Second) {
			_, err := k.passes()
			require.NoError(t, err)
		}
	}
	require.NoError(t, c.Shell(t.Context(), `nft "add table inet cut
add chain inet cut in { type filter hook input priority 0; }
add rule inet cut in ip saddr $1 tcp dport 6443 reject with tcp reset"`, n.Address)) // not on the node, where the audit would name the rule
	s.replaceEndpoints()
	require.NoError(t, s.Update(t.Context()))
	never(away)
	require.NoError(t, c.Shell(t.Context(), "nft delete table inet cut"))
	never(3 * time.Minute)
	k.untilVerdict("and back", "pass")
}

// refuseProxy refuses the connections of kube-proxy to the API server, and ends those that are open. MendProxy reverts it.
func (n *ProxyNode) refuseProxy(t *testing.T) error {
	return n.Shell(t.Context(), `nft "add table inet cut
add chain inet cut out { type filter hook output priority 0; }
add rule inet cut out ip daddr $2 tcp dport 6443 meta skgid $1 reject with tcp reset"`, fmt.Sprint(proxyGroup), Address)
}

// blockRestore replaces the program with which kube-proxy writes its rules by one that does not end.
func (n *ProxyNode) blockRestore() error {
	program := n.restoreProgram()
	if err := os.Remove(program); err != nil {
		return err
	}
	return os.WriteFile(program, []byte("#!/bin/sh\necho $$ >\"$0.pid\"\nexec sleep 600\n"), 0o755)
}

// unblockRestore puts the program back, and ends the one that blocks.
func (n *ProxyNode) unblockRestore(t *testing.T) error {
	program := n.restoreProgram()
	if err := os.Remove(program); err != nil {
		return err
	}
	if err := os.Symlink("/usr/sbin/xtables-legacy-multi", program); err != nil {
		return err
	}
	return n.Shell(t.Context(), `kill -9 "$(cat "$1.pid")"`, program)
}

// restoreProgram is the path of iptables-restore for kube-proxy alone.
func (n *ProxyNode) restoreProgram() string {
	return filepath.Join(n.plane.Dir, string(n.Backend), "iptables-restore")
}
