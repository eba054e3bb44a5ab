//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// settleTime is what kube-proxy and audit may need, together, to agree again after a change. Emulated or busy machines
// need most of it.
const settleTime = 3 * time.Minute

// TestChurn changes endpoints all the time, as every cluster does, beside a healthy kube-proxy. What audit finds meanwhile
// is false by construction.
func TestChurn(t *testing.T) {
	c, binary := plane(t, Newest, ForRules()), nodegate(t)
	churn := Usual()
	if err := churn.Prepare(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	for _, b := range Backends() {
		t.Run(string(b), func(t *testing.T) {
			n := addNode(t, c, b)
			untilAudit(t, n, binary, "before any change", "pass")
			tally, changes := auditInMotion(t, n, binary, churn, length(30*time.Second))
			t.Logf("%d audits during %d changes: %s", tally.Audits(), changes, tally)
			if tally.Audits() == 0 || changes == 0 {
				t.Error("nothing was tested")
			}
			for _, name := range slices.Sorted(maps.Keys(tally.First)) {
				t.Logf("the first false %s:\n%s", name, head(tally.First[name], 40))
			}
			untilAudit(t, n, binary, "after the last change", "pass")
		})
	}
}

// auditInMotion audits again and again for so long while endpoints change.
func auditInMotion(t *testing.T, n *ProxyNode, binary string, churn *Churn, d time.Duration) (tally *Tally, changes int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	before := churn.Changes()
	ended := make(chan error, 1)
	go func() { ended <- churn.Run(ctx) }()
	tally = &Tally{}
	for ctx.Err() == nil {
		a, err := n.Audit(t.Context(), binary) // the last one ends after the last change
		if err != nil {
			t.Fatal(err)
		}
		tally.Add(a)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	return tally, churn.Changes() - before
}

// TestStale cuts kube-proxy off from the API in three ways while endpoints change. Its rules are wrong then, audit says
// so, and no longer once kube-proxy is back.
func TestStale(t *testing.T) {
	c, binary := plane(t, Newest, ForRules()), nodegate(t)
	s, err := c.AddService(t.Context(), "web")
	if err != nil {
		t.Fatal(err)
	}
	address := 0
	replace := func(t *testing.T) {
		t.Helper()
		s.Ready = nil
		for range 4 {
			address++
			s.Ready = append(s.Ready, podAddress(address))
		}
		if err := s.Update(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	replace(t)
	for _, b := range Backends() {
		t.Run(string(b), func(t *testing.T) {
			n := addNode(t, c, b)
			untilAudit(t, n, binary, "before", "pass")
			for _, way := range []struct {
				name      string
				cut, mend func() error
				answers   bool // kube-proxy's healthz, while it is cut off
			}{
				{"cut off", func() error { return n.CutProxy(t.Context()) }, func() error { return n.MendProxy(t.Context()) }, true},
				{"stopped", func() error { return n.SignalProxy(syscall.SIGSTOP) }, func() error { return n.SignalProxy(syscall.SIGCONT) }, false},
				{"killed", func() error { return n.SignalProxy(syscall.SIGKILL) }, func() error { return n.StartProxy(t.Context()) }, false},
			} {
				t.Logf("--- %s", way.name)
				if err := way.cut(); err != nil {
					t.Fatal(err)
				}
				replace(t)
				began := time.Now()
				a := untilAudit(t, n, binary, way.name, "fail")
				t.Logf("found after %.1f s: %s", time.Since(began).Seconds(), strings.Join(a.Findings(), ", "))
				_, err := n.Healthz(t.Context())
				if (err == nil) != way.answers {
					t.Errorf("%s: kube-proxy's healthz: %v", way.name, err)
				}
				if err := way.mend(); err != nil {
					t.Fatal(err)
				}
				began = time.Now()
				untilAudit(t, n, binary, way.name+", and back", "pass")
				t.Logf("passes again after %.1f s", time.Since(began).Seconds())
			}
		})
	}
}

func addNode(t *testing.T, c *ControlPlane, b Backend) *ProxyNode {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), settleTime)
	defer cancel()
	n, err := c.AddProxyNode(ctx, fmt.Sprintf("%s-%d", b, len(c.spaces)), b)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	return n
}

// untilAudit wants a verdict soon. It returns the audit that had it.
func untilAudit(t *testing.T, n *ProxyNode, binary, when, want string) (a Audit) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), settleTime)
	defer cancel()
	err := Until(ctx, func() (err error) {
		if a, err = n.Audit(t.Context(), binary); err == nil && a.Verdict != want {
			err = fmt.Errorf("audit says %s, want %s", a.Verdict, want)
		}
		return err
	})
	if err != nil {
		rules, _ := n.Rules(t.Context())
		t.Fatalf("%s: %v\n%s\nthe rules:\n%s", when, err, a.Text, head(rules, 60))
	}
	return a
}

// head is the first n lines of text.
func head(text string, n int) string {
	lines := strings.SplitAfterN(text, "\n", n+1)
	return strings.Join(lines[:min(n, len(lines))], "")
}
