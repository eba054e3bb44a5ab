//go:build cluster

package cluster

import (
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"nodegate/internal/require"
)

const staleFlow = "kubeproxy.conntrack.stale-flow"

// TestFlows keeps sending datagrams to a Service, and removes its endpoints. A healthy kube-proxy deletes the conntrack entry, and audit
// passes. A stopped one does not: audit reports the flow, and the command in its remedy repairs it.
func TestFlows(t *testing.T) {
	c, binary := startPlane(t, Newest, ForRules()), buildNodegate(t)
	s, err := c.AddService(t.Context(), "datagrams", "UDP")
	require.NoError(t, err)
	set := func(t *testing.T, addresses ...string) {
		t.Helper()
		s.Ready = addresses
		require.NoError(t, s.Update(t.Context()))
	}
	for _, b := range Backends() {
		t.Run(string(b), func(t *testing.T) {
			set(t, "10.245.0.1")
			n := addNode(t, c, b)
			untilAudit(t, n, binary, "before", "pass")
			sendDatagrams(t, n, s.ClusterIP)
			untilFlow(t, n, "10.245.0.1")
			untilAudit(t, n, binary, "in use", "pass")

			set(t, "10.245.0.2")
			untilFlow(t, n, "10.245.0.2")
			untilAudit(t, n, binary, "another endpoint", "pass")

			require.NoError(t, n.SignalProxy(syscall.SIGSTOP))
			set(t)
			a := untilAudit(t, n, binary, "no endpoint, and kube-proxy is stopped", "fail")
			require.True(t, slices.Contains(a.Accusations(), staleFlow), "audit does not report the flow: %s", a.Said())
			require.NoError(t, n.SignalProxy(syscall.SIGCONT))
			untilRejected(t, n)
			a, err := n.Audit(t.Context(), binary)
			require.NoError(t, err)
			t.Logf("kube-proxy is back: %s (%s)", a.Verdict, strings.Join(a.Accusations(), ", "))
			for _, r := range a.Results {
				if r.Name == staleFlow && r.Verdict == "fail" {
					_, command, _ := strings.Cut(r.Remedy, "`")
					command = strings.TrimSuffix(command, "`")
					t.Logf("kube-proxy did not delete the flow (kubernetes#139628); running %s", command)
					require.NoError(t, n.Shell(t.Context(), command+" >/dev/null 2>&1"))
				}
			}
			untilAudit(t, n, binary, "after the command", "pass")
		})
	}
}

// sendDatagrams sends datagrams from one socket until the test ends.
func sendDatagrams(t *testing.T, n *ProxyNode, to string) {
	t.Helper()
	script := `exec 3>/dev/udp/$0/80; while sleep 0.2; do echo x >&3 || :; done 2>/dev/null`
	p, err := n.Start(n.Log()+".send", func(cmd *exec.Cmd) { cmd.Dir = "/" }, "bash", "-c", script, to)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = p.Signal(syscall.SIGKILL) // an error means that it has already ended
		_ = p.Wait()                  // it was killed, so an error is expected
	})
}

// untilFlow waits until conntrack has a flow to an endpoint.
func untilFlow(t *testing.T, n *ProxyNode, endpoint string) {
	t.Helper()
	waitUntil(t, "a flow to "+endpoint, func() (bool, error) {
		out, err := n.Output(t.Context(), "sh", "-c", "conntrack -L -p udp --reply-src "+endpoint+" 2>/dev/null")
		return strings.Contains(out, endpoint), err
	})
}

// untilRejected waits until the rules reject connections to the Service, which lacks endpoints.
func untilRejected(t *testing.T, n *ProxyNode) {
	t.Helper()
	waitUntil(t, "rules without an endpoint", func() (bool, error) {
		rules, err := n.Rules(t.Context())
		return err == nil && !strings.Contains(rules, "10.245.0."), err
	})
}
