package settle_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"nodegate/internal/audit/proxy"
	"nodegate/internal/audit/settle"
	"nodegate/internal/require"
	"nodegate/internal/verdict"
)

// slow is a cluster in IPVS mode on a slow node: one sync of kube-proxy takes from 5 to 45 s.
// Virtual servers are written one after the other, then ipsets. Changes during a sync go into the
// next sync, which begins as the first one ends. There is a sync at least every 30 s
// (syncProxyRules of pkg/proxy/ipvs, and pkg/proxy/runner).
type slow struct {
	*cluster
	known         int // number of versions that kube-proxy has received
	queued, ended time.Time
	deaf          bool // kube-proxy receives no more changes
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

// upTo returns an odd duration, so that no two events happen at the same instant.
func (s *slow) upTo(d time.Duration) time.Duration {
	return time.Duration(s.Int64N(int64(d)))/1e6*1e6 + 1 + time.Duration(s.IntN(1e6))
}

// burst makes a few changes to the API, repeatedly after a pause.
func (s *slow) burst(ctx context.Context) {
	for ctx.Err() == nil {
		for range 1 + s.IntN(4) {
			s.change()
			sleep(ctx, s.upTo(time.Second))
		}
		sleep(ctx, s.upTo(time.Minute))
	}
}

// TestSlowWritings checks that no finding results from a sync that takes longer than the settle
// time, because the next sync will contain the changes. Stale rules are found before kube-proxy
// would count as stuck.
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
			case 0: // a rule restored manually
				service := s.names[s.IntN(len(s.names))]
				s.stale[service], s.rules[service] = true, "99999"
			case 1: // it receives no more changes, and every Service changes
				s.deaf = true
				for _, service := range s.names {
					s.stale[service] = true
					list, number, _ := strings.Cut(s.rules[service], " ")
					s.rules[service] = list + ",99999 " + number
				}
			}
			s.began = time.Now()
			versions, err := s.List(ctx, false)
			require.NoError(t, err)
			looking, end := context.WithTimeout(ctx, 4*time.Minute)
			defer end()
			out, err := settle.Run(looking, s, s, versions, settle.Options{Settle: settleTime})
			require.NoError(t, err)
			converged += out.Converged
			for _, f := range out.Report.Findings {
				if f.Service = s.called(f.Service); f.Verdict != verdict.Fail || !s.stale[f.Service] && !s.deaf {
					t.Errorf("seed %d: finding about healthy Service %s: %s, %s: %s", seed, f.Service, f.Verdict, f.Name, f.Message)
				}
			}
			for service := range s.stale {
				stale++
				longest = max(longest, time.Since(s.began))
				if !slices.ContainsFunc(out.Report.Findings, func(f proxy.Finding) bool { return s.called(f.Service) == service }) {
					t.Errorf("seed %d: no finding, although the rules of %s are stale", seed, service)
				}
			}
			if took := time.Since(s.began); took > 150*time.Second && len(s.stale) > 0 {
				t.Errorf("seed %d: found as late as after %s", seed, took)
			}
			cancel()
		})
	}
	if converged == 0 || stale == 0 {
		t.Errorf("%d suspects and %d stale Services: this tests nothing", converged, stale)
	}
	t.Logf("%d suspects explained, %d stale Services found, the last after %s", converged, stale, longest)
}
