package settle_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"nodegate/internal/proxyrules"
	"nodegate/internal/verdict"
)

const settleTime = 15 * time.Second

// TestSchedules audits simulated clusters while their endpoints change: kube-proxy hears of every change late, and writes its
// rules late; the API server's list is old, its watch late, and the rules of two Services are never read at the same
// instant. A healthy kube-proxy is never accused, whatever the schedule; what is really stale is always found.
func TestSchedules(t *testing.T) { testSchedules(t, 100, false) }

func testSchedules(t *testing.T, schedules int, ipvs bool) {
	converged, stale := 0, 0
	for seed := range schedules {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(rand.New(rand.NewPCG(uint64(seed), 7)))
			c.ipvs = ipvs
			out := c.audit(t)
			converged += len(out.Converged)
			for i := range out.Report.Findings {
				f := &out.Report.Findings[i]
				f.Service = c.called(f.Service)
			}
			for _, f := range out.Report.Findings {
				switch {
				case !strings.HasPrefix(f.Name, "kubeproxy.truth."):
					t.Errorf("seed %d: %s (%s): what was torn once is no finding", seed, f.Name, f.Service)
				case f.Verdict != verdict.Fail:
					t.Errorf("seed %d: %s (%s) is %s: %s", seed, f.Name, f.Service, f.Verdict, f.Message)
				case !c.stale[f.Service] && !c.dead: // then all are, and an address that two had may have neither name
					t.Errorf("seed %d: %s is healthy, and accused: %s", seed, f.Service, f.Message)
				}
			}
			for service := range c.stale {
				stale++
				if !slices.ContainsFunc(out.Report.Findings, func(f proxyrules.Finding) bool { return f.Service == service }) {
					t.Errorf("seed %d: the rules of %s are stale, and nothing is found", seed, service)
				}
			}
			if out.Stale != (len(c.stale) > 0) {
				t.Errorf("seed %d: stale: %v, want %v", seed, out.Stale, len(c.stale) > 0)
			}
			if took := time.Since(c.began); took > 20*time.Second && len(c.stale) > 0 {
				t.Errorf("seed %d: found after %s only", seed, took)
			}
		})
	}
	if converged == 0 || stale == 0 {
		t.Errorf("%d suspicions and %d stale Services in %d schedules: that tests nothing", converged, stale, schedules)
	}
	t.Logf("%d schedules: %d suspicions passed, %d stale Services found", schedules, converged, stale)
}
