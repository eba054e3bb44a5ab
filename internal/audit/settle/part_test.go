package settle_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"nodegate/internal/audit/proxy"
	"nodegate/internal/audit/settle"
	"nodegate/internal/verdict"
)

// partly is a cluster whose rules can be read in parts. Its generation changes with the rules. A whole
// reading is expensive.
type partly struct {
	*cluster
	parts  [][]string // the Services of each part
	wholes int
	refuse bool
}

func (p *partly) Generation(context.Context) (string, bool, error) {
	return fmt.Sprint(p.rules), true, nil
}

func (p *partly) Rules(ctx context.Context) (proxy.Judgment, error) {
	p.wholes++
	before := p.spent
	rep, err := p.cluster.Rules(ctx)
	p.spent = before + time.Second
	rep.Findings = nil // a torn reading would have to be repeated
	return rep, err
}

func (p *partly) RulesOf(ctx context.Context, services []string) (proxy.Judgment, error) {
	p.parts = append(p.parts, services)
	if p.refuse {
		return proxy.Judgment{}, errors.ErrUnsupported
	}
	before := p.spent
	rep, err := p.cluster.Rules(ctx)
	p.spent = before + 5*time.Millisecond
	rep.KeepOnly(services)
	return rep, err
}

func followPartly(ctx context.Context, p *partly, done func(settle.Progress)) {
	settle.Follow(ctx, p, p, settle.FollowOptions{
		Settle: func() time.Duration { return settleTime }, Every: 5 * time.Minute, Done: done,
	})
}

// TestPartOfOne changes one Service at a time. Only its rules are read at once, and all rules later only
// because their generation has changed.
func TestPartOfOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &partly{cluster: newCluster(rand.New(rand.NewPCG(1, 1)))}
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		go p.proxy(ctx)
		go followPartly(ctx, p, func(k settle.Progress) {
			for _, f := range k.Findings {
				t.Errorf("%s: %s", f.Name, f.Message)
			}
		})
		time.Sleep(10*time.Minute + 7*time.Second)
		wholes, service := p.wholes, p.names[1]
		p.put(service, "77 0")
		time.Sleep(20 * time.Second)
		if p.wholes != wholes {
			t.Errorf("%d whole readings after one change", p.wholes-wholes)
		}
		if len(p.parts) == 0 || slices.ContainsFunc(p.parts, func(s []string) bool { return !slices.Equal(s, []string{service}) }) {
			t.Errorf("the parts were of %v, want %s only", p.parts, service)
		}
		time.Sleep(10 * time.Minute)
		if p.wholes != wholes+1 {
			t.Errorf("%d whole readings after the generation changed, want 1", p.wholes-wholes)
		}
	})
}

// TestPartStale makes a Service stale while endpoints change for a long time, so that whole readings are
// rationed. It is reported soon, by a whole reading that proves it, and no other Service is reported.
func TestPartStale(t *testing.T) {
	for seed := range uint64(6) {
		synctest.Test(t, func(t *testing.T) {
			p := &partly{cluster: newCluster(rand.New(rand.NewPCG(seed, 7)))}
			ctx, cancel := context.WithCancel(t.Context())
			defer synctest.Wait()
			defer cancel()
			go p.churn(ctx, 2*time.Second)
			go p.proxy(ctx)
			victim, named := p.names[0], time.Time{}
			go followPartly(ctx, p, func(k settle.Progress) {
				if !named.IsZero() && !slices.ContainsFunc(k.Findings, func(f proxy.Finding) bool { return f.Service == victim }) {
					t.Errorf("seed %d: the finding about a stale Service is gone after %s", seed, time.Since(named))
				}
				for _, f := range k.Findings {
					switch {
					case f.Verdict == verdict.Fail && !p.stale[f.Service]:
						t.Errorf("seed %d: finding about healthy Service %s: %s: %s", seed, f.Service, f.Name, f.Message)
					case f.Verdict == verdict.Fail && named.IsZero():
						named = time.Now()
					}
				}
			})
			time.Sleep(20 * time.Minute)
			p.stale[victim], p.rules[victim] = true, "99999"
			p.put(victim, "88888 0")
			began := time.Now()
			time.Sleep(time.Minute)
			if named.IsZero() {
				t.Errorf("seed %d: a stale Service was not reported within a minute", seed)
			}
			t.Logf("seed %d: reported after %s; %d whole readings, %d parts", seed, named.Sub(began), p.wholes, len(p.parts))
			if p.wholes < 5 {
				t.Errorf("seed %d: all rules were read %d times", seed, p.wholes)
			}
			if used := time.Duration(p.wholes) * time.Second; used > 21*time.Minute/60 {
				t.Errorf("seed %d: whole readings took %s", seed, used)
			}
			time.Sleep(20 * time.Minute)
		})
	}
}

// TestPartAgain changes two Services, of which one stays stale. Only its rules are read again.
func TestPartAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &partly{cluster: newCluster(rand.New(rand.NewPCG(1, 1)))}
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		go p.proxy(ctx)
		go followPartly(ctx, p, func(settle.Progress) {})
		time.Sleep(10*time.Minute + 7*time.Second)
		victim, other := p.names[0], p.names[1]
		p.stale[victim], p.rules[victim] = true, "99999"
		p.put(victim, "88888 0")
		p.put(other, "77 0")
		time.Sleep(20 * time.Second)
		alone := 0
		for _, services := range p.parts {
			if slices.Equal(services, []string{victim}) {
				alone++
			}
		}
		if alone < 3 || alone < len(p.parts)/2 {
			t.Errorf("%d of %d parts were of %s alone", alone, len(p.parts), victim)
		}
	})
}

// TestPartRefused checks rules that cannot be read in parts: all rules are read instead.
func TestPartRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &partly{cluster: newCluster(rand.New(rand.NewPCG(1, 1))), refuse: true}
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		go p.proxy(ctx)
		go followPartly(ctx, p, func(settle.Progress) {})
		time.Sleep(10 * time.Minute)
		wholes := p.wholes
		p.put(p.names[1], "77 0")
		time.Sleep(20 * time.Second)
		if len(p.parts) != 1 || p.wholes == wholes {
			t.Errorf("%d parts and %d whole readings, want one that was refused and then all rules", len(p.parts), p.wholes-wholes)
		}
	})
}
