package checks_test

import (
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/checks/checkstest"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/verdict"
)

// writtenRules returns other rules at each read; the last ones stay.
type writtenRules struct {
	host.Rules
	m     *hosttest.Machine
	reads []string
	asked *int
}

func (r writtenRules) Dumps(ctx context.Context, read func(string, io.Reader) error) error {
	r.m.Rules = map[string]string{"iptables-nft-save": r.reads[min(*r.asked, len(r.reads)-1)]}
	*r.asked++
	return r.Rules.Dumps(ctx, read)
}

// TestRecheckFailing: rules that kube-proxy is writing are not reported; a real fault persists a second later.
func TestRecheckFailing(t *testing.T) {
	whole := checkstest.ProxySave
	empty := checkstest.Changed(t, checkstest.DropInvalid, "")
	_, nat, _ := strings.Cut(whole, "*nat\n")
	flushed := "*filter\n:FORWARD ACCEPT [0:0]\nCOMMIT\n*nat\n" + nat
	for _, c := range []struct {
		name    string
		moves   bool
		reads   []string
		verdict verdict.Verdict
		asked   int
		took    time.Duration
	}{
		{"no change", true, []string{whole}, verdict.Pass, 1, 0},
		{"the first rules are written", true, []string{empty, whole}, verdict.Pass, 2, time.Second},
		{"table by table", true, []string{flushed, empty, whole}, verdict.Pass, 3, 2 * time.Second},
		{"a lasting fault", true, []string{empty}, verdict.Fail, 2, time.Second},
		{"different each time", true, []string{empty, flushed, empty, flushed, whole}, verdict.Unknown, 4, 3 * time.Second},
		{"a recording", false, []string{empty, whole}, verdict.Fail, 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := checkstest.ProxyNode("", "0")
				h, asked := m.Host(), 0
				h.Moves, h.Rules = c.moves, writtenRules{h.Rules, m, c.reads, &asked}
				p := checkstest.Load(t, `check "conntrack.invalid" {}`)
				began := time.Now()
				r := checks.Inspect(t.Context(), h, checks.Run, catalog.For(p, checks.Run))
				if got := r.Results[0]; got.Verdict != c.verdict || asked != c.asked || time.Since(began) != c.took {
					t.Errorf("%v (%s, %v) after %d reads and %v, want %v after %d and %v", got.Verdict, got.State.Got, got.Err, asked,
						time.Since(began), c.verdict, c.asked, c.took)
				}
			})
		})
	}
}
