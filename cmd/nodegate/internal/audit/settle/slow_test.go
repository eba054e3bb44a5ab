package settle_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"nodegate/cmd/nodegate/internal/audit/settle"
	"nodegate/internal/proxyrules"
	"nodegate/internal/verdict"
)

// slow is a cluster in IPVS mode on a slow node: one writing of kube-proxy takes from 5 to 45 s. Virtual servers are written one after the
// other, and ipsets after them. What comes meanwhile is in the next writing, which begins as this one ends; one is made every 30 s at least
// (syncProxyRules of pkg/proxy/ipvs, and pkg/proxy/runner).
type slow struct {
	*cluster
	known         int // how much of log kube-proxy has heard of
	queued, ended time.Time
	deaf          bool // it hears nothing any more
}

func (s *slow) Written() map[string]settle.Written {
	return map[string]settle.Written{"ip": {At: s.ended, Queued: s.queued}}
}

func (s *slow) hear(ctx context.Context) {
	for ctx.Err() == nil {
		if heard := s.heard(s.lagged / 2); heard > s.known && !s.deaf {
			s.known, s.queued = heard, time.Now()
		}
		sleep(ctx, s.upTo(300*time.Millisecond))
	}
}

func (s *slow) write(ctx context.Context) {
	for {
		for wait := time.Duration(0); wait < 30*time.Second && s.applied == s.known && ctx.Err() == nil; wait += 50 * time.Millisecond {
			sleep(ctx, 50*time.Millisecond)
		}
		s.applied = s.known
		state, takes := s.state(s.applied), 5*time.Second+s.upTo(40*time.Second)
		for i, name := range s.names {
			sleep(ctx, takes/time.Duration(2*len(s.names)))
			if !s.stale[s.names[i]] && ctx.Err() == nil {
				s.rules[name] = state[name]
			}
		}
		if sleep(ctx, takes/2); ctx.Err() != nil {
			return
		}
		s.ended = time.Now()
		sleep(ctx, s.upTo(time.Second))
	}
}

// upTo returns an odd time: nothing happens at the same instant.
func (s *slow) upTo(d time.Duration) time.Duration {
	return time.Duration(s.Int64N(int64(d)))/1e6*1e6 + 1 + time.Duration(s.IntN(1e6))
}

// burst changes the API a few times, again and again after a pause.
func (s *slow) burst(ctx context.Context) {
	for ctx.Err() == nil {
		for range 1 + s.IntN(4) {
			s.change()
			sleep(ctx, s.upTo(time.Second))
		}
		sleep(ctx, s.upTo(time.Minute))
	}
}

// TestSlowWritings: while one writing takes longer than the settle time, nobody is accused of what the next will have. What is stale is
// found before the time is over at which kube-proxy could be stuck.
func TestSlowWritings(t *testing.T) {
	converged, stale, longest := 0, 0, time.Duration(0)
	for seed := range 60 {
		synctest.Test(t, func(t *testing.T) {
			s := &slow{cluster: newCluster(rand.New(rand.NewPCG(uint64(seed), 11)))}
			s.ipvs, s.known, s.queued, s.ended = true, s.applied, time.Now().Add(-time.Second), time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			go s.burst(ctx)
			go s.hear(ctx)
			go s.write(ctx)
			sleep(ctx, s.upTo(2*time.Minute))
			switch s.IntN(4) {
			case 0: // a rule put back by hand
				service := s.names[s.IntN(len(s.names))]
				s.stale[service], s.rules[service] = true, "99999"
			case 1: // it hears nothing any more, and every Service changes
				s.deaf = true
				for _, service := range s.names {
					s.stale[service] = true
					list, number, _ := strings.Cut(s.rules[service], " ")
					s.rules[service] = list + ",99999 " + number
				}
			}
			s.began = time.Now()
			versions, err := s.List(ctx, false)
			if err != nil {
				t.Fatal(err)
			}
			looking, end := context.WithTimeout(ctx, 4*time.Minute)
			defer end()
			out, err := settle.Run(looking, s, s, versions, settle.Options{Settle: settleTime})
			if err != nil {
				t.Fatal(err)
			}
			converged += len(out.Converged)
			for _, f := range out.Report.Findings {
				if f.Service = s.called(f.Service); f.Verdict != verdict.Fail || !s.stale[f.Service] && !s.deaf {
					t.Errorf("seed %d: %s is healthy: %s, %s: %s", seed, f.Service, f.Verdict, f.Name, f.Message)
				}
			}
			for service := range s.stale {
				stale++
				longest = max(longest, time.Since(s.began))
				if !slices.ContainsFunc(out.Report.Findings, func(f proxyrules.Finding) bool { return s.called(f.Service) == service }) {
					t.Errorf("seed %d: the rules of %s are stale, and nothing is found", seed, service)
				}
			}
			if took := time.Since(s.began); took > 150*time.Second && len(s.stale) > 0 {
				t.Errorf("seed %d: found after %s only", seed, took)
			}
			cancel()
		})
	}
	if converged == 0 || stale == 0 {
		t.Errorf("%d suspicions and %d stale Services: that tests nothing", converged, stale)
	}
	t.Logf("%d suspicions passed, %d stale Services found, the last after %s", converged, stale, longest)
}
