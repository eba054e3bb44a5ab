package settle_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"nodegate/internal/audit/proxy"
	"nodegate/internal/audit/settle"
	"nodegate/internal/verdict"
)

// Generation returns an unknown generation, as with the legacy backend.
func (c *cluster) Generation(context.Context) (string, bool, error) { return "", false, nil }

func (c *cluster) Spent() time.Duration { return c.spent }

func (c *cluster) Flows(context.Context, settle.API, *proxy.Versions, time.Duration) []proxy.Finding {
	return nil
}

func (c *cluster) Conclude(context.Context, *settle.Outcome, bool) {}

func (c *cluster) Trouble(ctx context.Context) []proxy.Finding { return c.Proxy(ctx) }

// TestKeep audits simulated clusters for ten minutes while their endpoints change. A healthy
// Service never gets a finding. A Service with manually restored stale rules gets one until the
// rules are repaired.
func TestKeep(t *testing.T) {
	rounds, found := 0, 0
	for seed := range 6 {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(rand.New(rand.NewPCG(uint64(seed), 11)))
			ctx, cancel := context.WithCancel(t.Context())
			defer synctest.Wait()
			defer cancel()
			go c.churn(ctx, time.Duration(20+c.IntN(3000))*time.Millisecond)
			go c.proxy(ctx)
			accused, mended := map[string]bool{}, time.Time{}
			go settle.Follow(ctx, c, c, settle.FollowOptions{
				Settle: func() time.Duration { return settleTime }, Every: time.Minute,
				Done: func(k settle.Progress) {
					rounds++
					clear(accused)
					for _, f := range k.Findings {
						accused[f.Service] = f.Verdict == verdict.Fail
						if f.Verdict != verdict.Fail || !c.stale[f.Service] && time.Since(mended) > 2*time.Second {
							t.Errorf("seed %d: finding about healthy Service %s: %s: %s", seed, f.Service, f.Name, f.Message)
						}
					}
				},
			})
			time.Sleep(4 * time.Minute)
			service := c.names[0]
			c.stale[service], c.rules[service] = true, "99999"
			time.Sleep(3 * time.Minute)
			if !accused[service] {
				t.Errorf("seed %d: no finding, although the rules of %s have been stale for 3 minutes", seed, service)
			}
			found++
			c.rules[service] = c.shadow[service]
			delete(c.stale, service)
			mended = time.Now()
			c.applied = len(c.log) - 1
			time.Sleep(3 * time.Minute)
			if accused[service] {
				t.Errorf("seed %d: a finding remains, although the rules of %s were repaired 3 minutes ago", seed, service)
			}
		})
	}
	if rounds < 30 {
		t.Errorf("%d rounds in an hour of changes", rounds)
	}
	t.Logf("%d rounds, %d stale Services", rounds, found)
}

// TestKeepBehind checks that a watch that misses a change is detected even if kube-proxy has
// received the change and the rules are correct.
func TestKeepBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &still{cluster: newCluster(rand.New(rand.NewPCG(2, 1)))}
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		rounds := 0
		go settle.Follow(ctx, s, s, settle.FollowOptions{
			Settle: func() time.Duration { return settleTime }, Every: time.Minute,
			Done: func(k settle.Progress) {
				rounds++
				for _, f := range k.Findings {
					t.Errorf("%s: %s", f.Name, f.Message)
				}
			},
		})
		time.Sleep(30 * time.Second)
		s.put(s.names[0], "77 0")
		s.rules[s.names[0]] = "77 0"
		time.Sleep(20 * time.Minute)
		if rounds < 10 || s.lists != 3 {
			t.Errorf("the API was listed %d times in %d rounds, want the first list, one that confirms, and a new one", s.lists, rounds)
		}
	})
}

// TestKeepBoot checks a boot at which kube-proxy writes its first rules after the first round and
// reading is expensive. The result must not stay unknown for minutes. If no rules appear, reading
// may take at most one part in 50 of the time.
func TestKeepBoot(t *testing.T) {
	for _, comes := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			c := &boot{cluster: newCluster(rand.New(rand.NewPCG(1, 1)))}
			ctx, cancel := context.WithCancel(t.Context())
			defer synctest.Wait()
			defer cancel()
			go c.proxy(ctx)
			var last settle.Progress
			go settle.Follow(ctx, c, c, settle.FollowOptions{
				Settle: func() time.Duration { return settleTime }, Every: 5 * time.Minute, Done: func(k settle.Progress) { last = k },
			})
			time.Sleep(20 * time.Second)
			if last.Rounds == 0 || last.Unread == nil {
				t.Fatalf("the first round: %+v", last)
			}
			c.written.Store(comes)
			time.Sleep(time.Minute)
			if (last.Unread == nil) != comes {
				t.Errorf("rules appear: %v; a minute later: %v", comes, last.Unread)
			}
			time.Sleep(time.Hour)
			if used := time.Duration(last.Reads) * readTime; used > time.Hour/50 {
				t.Errorf("rules appear: %v; reading took %v of an hour", comes, used)
			}
		})
	}
}

// TestKeepAfterBoot checks a first round during kube-proxy's first sync, which reads the rules many
// times. Rules that become stale soon after must still be reported in time.
func TestKeepAfterBoot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &costly{newCluster(rand.New(rand.NewPCG(1, 1)))}
		service := c.names[0]
		good := c.rules[service]
		c.rules[service] = "99999"
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		var last settle.Progress
		go settle.Follow(ctx, c, c, settle.FollowOptions{
			Settle: func() time.Duration { return settleTime }, Every: 5 * time.Minute, Done: func(k settle.Progress) { last = k },
		})
		time.Sleep(4 * time.Second)
		c.rules[service] = good
		time.Sleep(time.Minute)
		if last.Rounds != 1 || last.Reads < 3 || len(last.Findings) > 0 {
			t.Fatalf("after a minute: %d rounds, %d readings, findings %v; want one round that ended well", last.Rounds, last.Reads, last.Findings)
		}
		c.put(c.names[1], "99999 0")
		time.Sleep(time.Minute)
		if len(last.Findings) == 0 {
			t.Errorf("no finding after %d rounds, although a Service has been stale for a minute", last.Rounds)
		}
	})
}

// costly is a cluster in which one reading costs half a second.
type costly struct{ *cluster }

func (c *costly) Rules(ctx context.Context) (proxy.Judgment, error) {
	sleep(ctx, time.Second/2)
	c.spent += time.Second / 2
	return c.cluster.Rules(ctx)
}

const readTime = 3 * time.Second

// boot is a cluster whose rules do not exist yet.
type boot struct {
	*cluster
	written atomic.Bool
}

func (b *boot) Rules(ctx context.Context) (proxy.Judgment, error) {
	sleep(ctx, readTime)
	b.spent += readTime
	if !b.written.Load() {
		return proxy.Judgment{}, errors.New("no kube-proxy rules")
	}
	return b.cluster.Rules(ctx)
}

// TestKeepWriting checks a first sync of ten minutes: no Service gets a finding, the API is not
// listed repeatedly, and the result is pass soon after the sync.
func TestKeepWriting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &still{cluster: newCluster(rand.New(rand.NewPCG(1, 1))), writes: 10 * time.Minute, torn: true}
		s.began, s.rules[s.names[0]] = time.Now(), "99999"
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		unknown, passed := 0, false
		go settle.Follow(ctx, s, s, settle.FollowOptions{
			Settle: func() time.Duration { return settleTime }, Every: 5 * time.Minute,
			Done: func(k settle.Progress) {
				for _, f := range k.Findings {
					if f.Verdict != verdict.Unknown {
						t.Errorf("after %s: %s: %s", time.Since(s.began), f.Name, f.Message)
					}
				}
				passed = len(k.Findings) == 0 && k.Unread == nil && k.Unanswered == nil
				if !passed {
					unknown++
				}
			},
		})
		time.Sleep(15 * time.Minute)
		if unknown < 2 || !passed {
			t.Errorf("%d unknown rounds; passed in the end: %v", unknown, passed)
		}
		if s.lists > 1 {
			t.Errorf("the API was listed %d times", s.lists)
		}
	})
}

// TestKeepTorn checks that findings of the rules alone are not reported before the settle time,
// even if the writer cannot be observed.
func TestKeepTorn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &still{cluster: newCluster(rand.New(rand.NewPCG(1, 1))), writes: settleTime / 2, torn: true, unseen: true}
		s.began = time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		rounds := 0
		go settle.Follow(ctx, s, s, settle.FollowOptions{
			Settle: func() time.Duration { return settleTime }, Every: time.Minute,
			Done: func(k settle.Progress) {
				rounds++
				for _, f := range k.Findings {
					t.Errorf("after %s: %s: %s", time.Since(s.began), f.Name, f.Message)
				}
			},
		})
		time.Sleep(time.Minute)
		if rounds == 0 {
			t.Error("no round")
		}
	})
}

// busy is a cluster of 2,000 Services with ten endpoints each, as far as the cost of a reading goes
// (BenchmarkReading). Its kube-proxy may be gone.
type busy struct {
	*cluster
	reads int
	gone  bool
}

func (b *busy) Rules(ctx context.Context) (proxy.Judgment, error) {
	b.reads++
	return b.cluster.Rules(ctx)
}

func (b *busy) Spent() time.Duration { return time.Duration(b.reads) * 850 * time.Millisecond }

func (b *busy) Proxy(context.Context) []proxy.Finding {
	if !b.gone {
		return nil
	}
	return []proxy.Finding{proxy.NewFinding(proxy.Finding{Name: "kubeproxy.process.absent", Message: "gone"})}
}

func (b *busy) Trouble(ctx context.Context) []proxy.Finding { return b.Proxy(ctx) }

// TestKeepBusy changes endpoints five times a second for long. The rules are compared at least once a
// minute, on the average of the clusters with at most 7 % of a processor, and a stale Service is named
// within a minute. So is a kube-proxy that is gone, whether changes go on or not, and no change then
// waits unseen for two minutes.
func TestKeepBusy(t *testing.T) {
	const clusters = 10
	all := 0.0
	for seed := range uint64(clusters) {
		synctest.Test(t, func(t *testing.T) {
			b := &busy{cluster: newCluster(rand.New(rand.NewPCG(seed, 3)))}
			b.lagged = time.Second
			ctx, cancel := context.WithCancel(t.Context())
			churning, stop := context.WithCancel(ctx)
			defer synctest.Wait()
			defer cancel()
			defer stop()
			go b.churn(churning, 200*time.Millisecond)
			go b.proxy(ctx)
			var last settle.Progress
			longest := time.Duration(0)
			named := func(about string) bool {
				return slices.ContainsFunc(last.Findings, func(f proxy.Finding) bool {
					return f.Verdict == verdict.Fail && (f.Service == about || f.Name == about)
				})
			}
			go settle.Follow(ctx, b, b, settle.FollowOptions{
				Settle: func() time.Duration { return settleTime }, Every: 5 * time.Minute,
				Done: func(k settle.Progress) {
					if k.Rounds > 1 && k.Rounds != last.Rounds {
						longest = max(longest, k.Audited.Sub(last.Audited))
					}
					last = k
				},
				Looked: func(k settle.Progress) { last.Waiting = k.Waiting },
			})
			time.Sleep(10*time.Minute + time.Duration(b.IntN(40))*time.Second)
			used := float64(b.Spent()) / float64(10*time.Minute)
			all += used
			t.Logf("seed %d: %.1f %% of a processor, a round at least every %s", seed, 100*used, longest)
			if longest > time.Minute {
				t.Errorf("seed %d: the longest pause was %s", seed, longest)
			}
			victim := b.names[0]
			b.stale[victim], b.rules[victim] = true, "99999"
			time.Sleep(time.Minute)
			if !named(b.called(victim)) && !named(victim) {
				t.Errorf("seed %d: a stale Service is not named after a minute: %v", seed, last.Findings)
			}
			if seed%2 == 0 {
				stop()
			}
			b.gone = true
			if time.Sleep(time.Minute); !named("kubeproxy.process.absent") {
				t.Errorf("seed %d: a kube-proxy that is gone is not named after a minute", seed)
			}
			if waits := time.Since(last.Waiting); !last.Waiting.IsZero() && waits > 2*time.Minute {
				t.Errorf("seed %d: a change has waited for %s", seed, waits)
			}
		})
	}
	if used := all / clusters; used > 0.07 {
		t.Errorf("%.1f %% of a processor on the average", 100*used)
	}
}
