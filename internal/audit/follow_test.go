package audit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"nodegate/internal/audit/proxy"
	"nodegate/internal/audit/settle"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/kube"
	"nodegate/internal/require"
	"nodegate/internal/verdict"
)

const recorded = "proxy/testdata/"

// followed is a node with recorded rules, its kube-proxy, and its API server.
type followed struct {
	t        *testing.T
	machine  *hosttest.Machine
	written  time.Time     // when kube-proxy last wrote rules; zero: never
	queued   time.Time     // when it last received a change
	failures int           // of writing rules
	answered int           // requests of kube-proxy to the API
	refused  int           // requests without an answer
	refuses  bool          // healthz has status 503
	moved    bool          // an endpoint has another address in the API
	dead     bool          // its process is gone
	away     bool          // the API server refuses connections
	offset   time.Duration // by which the clock was set

	costs, spent time.Duration // processor time of half a round, and of all
	events       chan proxy.Event
	ends         chan struct{} // ends the watch of the API

	kept   settle.Progress
	seen   []string // the worst verdict of each round
	looked int
}

func newFollowed(t *testing.T) *followed {
	rules, err := os.ReadFile(recorded + "iptables-save.txt")
	require.NoError(t, err)
	const listens = "  sl  local_address\n 0: 00000000:7906 00000000:0000 0A 0 0 0 0 0 77\n" // lb-local's health check node port
	return &followed{t: t, events: make(chan proxy.Event), ends: make(chan struct{}),
		written: time.Now(), queued: time.Now(), machine: &hosttest.Machine{
			Rules: map[string]string{"iptables-nft-save": string(rules)},
			Files: map[string]string{
				"/proc/self/ns/net": "-> net:[1]", "/proc/7/ns/net": "-> net:[1]", "/proc/self/ns/pid": "-> pid:[4026531836]",
				"/proc/7/stat": "7 (a) S 1 7 7 0 -1 4194304 1 0 0 0 9 50 0 0 20 0 1 0 6000 0", "/proc/7/cmdline": "kube-proxy\x00",
				"/proc/uptime": "1000.00 1.00\n", "/proc/7/fd/3": "-> socket:[77]", "/proc/7/net/tcp": listens,
			},
		}}
}

func (f *followed) node() *Machine {
	n := NewMachine(f.machine.Host())
	n.Presence.Get = f.page
	n.Presence.Clock = func() time.Duration { return time.Hour + f.offset }
	n.generation = func(context.Context) (string, bool, error) { return "7", true, nil }
	n.flows = func(context.Context) ([]proxy.Flow, error) { return nil, nil }
	n.spent = func() time.Duration { // the clock is not real: a busy machine would delay the next round
		f.spent += f.costs
		return f.spent
	}
	return n
}

// follow audits the node until the test ends.
func (f *followed) follow() {
	n := f.node()
	ctx, cancel := context.WithCancel(f.t.Context())
	f.t.Cleanup(func() {
		cancel()
		synctest.Wait()
	})
	go n.follow(ctx, f, FollowRequest{Every: 5 * time.Minute, Settle: 15 * time.Second, Looked: func(settle.Progress) { f.looked++ }, Done: func(k settle.Progress) {
		f.kept = k
		f.seen = append(f.seen, worstOf(k).String())
	}})
}

// page is one of kube-proxy's pages.
func (f *followed) page(_ context.Context, address string) (body []byte, status int, err error) {
	now := time.Now()
	switch {
	case f.dead:
		return nil, 0, syscall.ECONNREFUSED
	case strings.HasSuffix(address, "/metrics"):
		const last = "kubeproxy_sync_proxy_rules_last_%stimestamp_seconds %d\n"
		return fmt.Appendf(nil, last+last+"kubeproxy_sync_proxy_rules_iptables_restore_failures_total %d\n"+
			"rest_client_requests_total{code=\"200\",method=\"GET\"} %d\nrest_client_requests_total{code=\"<error>\",method=\"GET\"} %d\n",
			"", max(0, f.written.Unix()), "queued_", max(0, f.queued.Unix()), f.failures, f.answered, f.refused), http.StatusOK, nil
	case f.refuses:
		status = http.StatusServiceUnavailable
	default:
		status = http.StatusOK
	}
	return fmt.Appendf(nil, `{"lastUpdated": %q, "currentTime": %[1]q}`, now.Format(time.RFC3339Nano)), status, nil
}

// move changes an endpoint in the API, or changes it back.
func (f *followed) move(moved bool) {
	f.moved = moved
	f.events <- proxy.Relisted(f.list())
}

func (f *followed) list() *proxy.Versions {
	v := proxy.NewVersions()
	for name, read := range map[string]func(text string) error{
		"services.json": func(s string) (err error) { v.Services, err = proxy.LoadServices(strings.NewReader(s)); return err },
		"endpointslices.json": func(s string) (err error) {
			v.Endpoints, err = proxy.LoadEndpointSlices(strings.NewReader(s))
			return err
		},
	} {
		text, err := os.ReadFile(recorded + name)
		list := string(text)
		if f.moved {
			list = strings.ReplaceAll(list, "100.97.0.10\"", "100.97.0.99\"")
		}
		if err := errors.Join(err, read(list)); err != nil {
			f.t.Error(err)
		}
	}
	return v
}

func (f *followed) List(ctx context.Context, latest bool) (*proxy.Versions, error) {
	if f.away {
		return (&API{kube.NewClient("", refusing{})}).List(ctx, latest)
	}
	return f.list(), nil
}

func (f *followed) Follow(ctx context.Context, _ *proxy.Versions, send func(proxy.Event)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.ends:
			_, err := (&API{kube.NewClient("", refusing{})}).List(ctx, false)
			return err
		case e := <-f.events:
			send(e)
		}
	}
}

func worstOf(k settle.Progress) verdict.Verdict {
	worst, _ := Conclude(k, time.Now())
	return worst
}

// want checks the verdict of the last round and the names of its findings other than truth.
func (f *followed) want(when string, v verdict.Verdict, names ...string) {
	f.t.Helper()
	synctest.Wait()
	var got []string
	said := ""
	for _, g := range f.kept.Findings {
		said += "\n" + g.Verdict.String() + " " + g.Name + ": " + g.Message
		if !strings.HasPrefix(g.Name, "kubeproxy.truth.") {
			got = append(got, strings.TrimPrefix(g.Name, "kubeproxy."))
		}
	}
	slices.Sort(got)
	if is := worstOf(f.kept); is != v || !slices.Equal(slices.Compact(got), names) {
		f.t.Errorf("%s: %s %v, want %s %v%s", when, is, got, v, names, said)
	}
}

// TestFollow checks that the audit of watch draws the conclusions of a single audit about kube-proxy
// itself, and passes again after the failure.
func TestFollow(t *testing.T) {
	runFollowed(t, map[string]func(f *followed){
		"healthy": func(f *followed) {
			time.Sleep(time.Hour)
			f.want("after an hour", verdict.Pass)
			if len(f.seen) != 1 || f.looked < 100 {
				f.t.Errorf("%d rounds and %d looks, although nothing changed", len(f.seen), f.looked)
			}
		},
		"dead watch": func(f *followed) {
			f.move(true)
			time.Sleep(time.Minute)
			f.want("an endpoint has changed", verdict.Fail, "watch.dead")
			f.move(false)
			time.Sleep(time.Minute)
			f.want("and back", verdict.Pass)
		},
		"refused, stale rules": func(f *followed) {
			f.move(true)
			for range 12 {
				time.Sleep(10 * time.Second)
				synctest.Wait()
				f.refused++
			}
			f.want("an endpoint has changed", verdict.Fail, "watch.failing")
			f.answered++
			f.move(false)
			time.Sleep(time.Minute)
			f.want("answered again", verdict.Pass)
		},
		"refused, nothing changes": func(f *followed) {
			for range 60 {
				time.Sleep(10 * time.Second)
				synctest.Wait()
				f.refused++
			}
			f.want("rules that match", verdict.Unknown, "watch.failing")
			f.answered++
			time.Sleep(time.Minute)
			f.want("answered again", verdict.Pass)
		},
		"few requests fail": func(f *followed) {
			for i := range 60 {
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if f.refused++; i%6 == 0 {
					f.answered++
				}
			}
			f.want("some are answered", verdict.Pass)
			if len(f.seen) != 1 {
				f.t.Errorf("rounds: %v", f.seen)
			}
		},
		"sync hangs": func(f *followed) {
			f.queued = time.Now()
			time.Sleep(90 * time.Second)
			f.refuses = true
			time.Sleep(time.Minute)
			f.want("an update waits", verdict.Fail, "sync.stuck", "sync.unhealthy")
			f.written, f.refuses = time.Now(), false
			time.Sleep(time.Minute)
			f.want("and back", verdict.Pass)
		},
		"sync hangs, stale rules": func(f *followed) { // the update is an excuse for a minute, and part of the round after it
			f.queued = time.Now().Add(time.Second)
			f.move(true)
			time.Sleep(70 * time.Second)
			f.refuses = true
			time.Sleep(time.Minute)
			f.want("an update waits", verdict.Fail, "sync.stuck", "sync.unhealthy")
		},
		"sync hangs, unreadable rules": func(f *followed) {
			f.machine.Rules["iptables-nft-save"] = "*nat\ntruncated"
			f.queued, f.refuses = time.Now(), true
			time.Sleep(3 * time.Minute)
			f.want("an update waits", verdict.Fail, "sync.stuck", "sync.unhealthy")
			if f.kept.Unread == nil {
				f.t.Error("the rules were read")
			}
		},
		"a sync ends just in time": func(f *followed) {
			f.queued = time.Now()
			time.Sleep(90 * time.Second)
			f.refuses = true
			for synctest.Wait(); f.kept.Rounds < 1 || f.looked < 4; synctest.Wait() {
				time.Sleep(time.Second)
			}
			f.written, f.refuses = time.Now(), false
			time.Sleep(time.Minute)
			f.want("it was queried again", verdict.Pass)
			if slices.Contains(f.seen, "fail") {
				f.t.Errorf("accused: %v", f.seen)
			}
		},
		"killed after an expensive round": func(f *followed) {
			f.costs = 4 * time.Second
			f.move(true)
			f.move(false)
			time.Sleep(20 * time.Second)
			synctest.Wait()
			f.dead = true
			delete(f.machine.Files, "/proc/7/cmdline")
			delete(f.machine.Files, "/proc/7/stat")
			time.Sleep(47 * time.Second)
			f.want("gone", verdict.Fail, "process.absent")
		},
		"failed writes": func(f *followed) {
			f.failures++ // the first was before watch began
			f.move(true)
			f.move(false)
			time.Sleep(20 * time.Second)
			f.want("since the last round", verdict.Warn, "sync.restore-failures")
			time.Sleep(time.Minute)
			f.want("no more", verdict.Pass)
		},
	})
}

// runFollowed runs each function in simulated time on a node that has passed for a minute.
func runFollowed(t *testing.T, runs map[string]func(f *followed)) {
	for what, run := range runs {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFollowed(t)
				f.failures = 1
				f.follow()
				time.Sleep(time.Minute)
				f.want("at first", verdict.Pass)
				run(f)
			})
		})
	}
}

// TestFollowStart checks that a kube-proxy that has just started may need a minute for its first sync.
func TestFollowStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFollowed(t)
		f.written, f.queued = time.Time{}, time.Time{}
		f.machine.Files["/proc/uptime"] = "60.00 1.00\n" // it started 60 s after the boot
		f.follow()
		time.Sleep(40 * time.Second)
		f.want("at first", verdict.Unknown, "sync.never")
		f.machine.Files["/proc/uptime"] = "130.00 1.00\n"
		time.Sleep(2 * time.Minute)
		f.want("later", verdict.Fail, "sync.never")
		f.written, f.queued = time.Now(), time.Now()
		time.Sleep(6 * time.Minute)
		f.want("it has written", verdict.Pass)
	})
}
