package settle_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"nodegate/internal/audit/proxy"
	"nodegate/internal/verdict"
)

const settleTime = 15 * time.Second

// TestSchedules audits simulated clusters while their endpoints change. kube-proxy receives every
// change late and writes its rules late. The API server's list is old, its watch late, and the
// rules of two Services are never read at the same instant. A healthy kube-proxy never gets a
// finding, whatever the schedule. Stale rules are always found.
func TestSchedules(t *testing.T) { testSchedules(t, 100, false) }

func testSchedules(t *testing.T, schedules int, ipvs bool) {
	converged, stale := 0, 0
	for seed := range schedules {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(rand.New(rand.NewPCG(uint64(seed), 7)))
			c.ipvs = ipvs
			out := c.audit(t)
			converged += out.Converged
			for i := range out.Report.Findings {
				f := &out.Report.Findings[i]
				f.Service = c.called(f.Service)
			}
			for _, f := range out.Report.Findings {
				switch {
				case !strings.HasPrefix(f.Name, "kubeproxy.truth."):
					t.Errorf("seed %d: %s (%s): a finding about one torn reading", seed, f.Name, f.Service)
				case f.Verdict != verdict.Fail:
					t.Errorf("seed %d: %s (%s) is %s: %s", seed, f.Name, f.Service, f.Verdict, f.Message)
				case !c.stale[f.Service] && !c.dead: // then all are stale, and an address that two Services had may have neither name
					t.Errorf("seed %d: finding about healthy Service %s: %s", seed, f.Service, f.Message)
				}
			}
			for service := range c.stale {
				stale++
				if !slices.ContainsFunc(out.Report.Findings, func(f proxy.Finding) bool { return f.Service == service }) {
					t.Errorf("seed %d: no finding, although the rules of %s are stale", seed, service)
				}
			}
			if out.Stale != (len(c.stale) > 0) {
				t.Errorf("seed %d: stale: %v, want %v", seed, out.Stale, len(c.stale) > 0)
			}
			if took := time.Since(c.began); took > 20*time.Second && len(c.stale) > 0 {
				t.Errorf("seed %d: found as late as after %s", seed, took)
			}
		})
	}
	if converged == 0 || stale == 0 {
		t.Errorf("%d suspects and %d stale Services in %d schedules: this tests nothing", converged, stale, schedules)
	}
	t.Logf("%d schedules: %d suspects explained, %d stale Services found", schedules, converged, stale)
}
