package datapath

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"nodegate/internal/host/netns"
)

// onHost probes as Bridge does on the host, with a namespace instead of the host.
func onHost(t testing.TB, router *netns.Namespace, o BridgeOptions) BridgeResult {
	t.Helper()
	start := time.Now()
	r, err := probeIn(deadline(t), router, o)
	must(t, err)
	for _, w := range r.Warnings {
		t.Errorf("warning: %s", w)
	}
	r.Duration = Millis(time.Since(start))
	return r
}

// checkEmpty fails if a probe has left something in the namespace.
func checkEmpty(t testing.TB, n *netns.Namespace) {
	t.Helper()
	links, tables := runIn(t, n, "ip", "-o", "link"), runIn(t, n, "nft", "list", "tables")
	if strings.Count(links, "\n") != 1 || strings.Contains(links+tables, bridgeName) {
		t.Errorf("left behind: links %s, tables %s", links, tables)
	}
}

// TestScenarioSameBridgeReplyLost loses the reply of a same-node Service, checks that the loss is named, and repairs it.
func TestScenarioSameBridgeReplyLost(t *testing.T) {
	n := newNetns(t)
	sysctl(t, n, forwardKey, "1")
	sysctl(t, n, callKey, "0")
	r := onHost(t, n, BridgeOptions{Timeout: time.Hour}) // it sees an untranslated reply, and does not wait for another one
	if r.Pass || r.Lost != ReplyUntranslated {
		t.Fatalf("%s: %s", r.Lost, r.Summary)
	}
	seen := r.Observed
	if seen.Hooks.Translated != 1 || seen.Arrived == 0 || seen.Hooks.Reply.Prerouting != 0 || seen.Untranslated == 0 || seen.Resets == 0 {
		t.Errorf("counted %+v", seen)
	}
	if seen.Conntrack == nil || seen.Conntrack.SeenReply || seen.Conntrack.Reply.From != r.Endpoint {
		t.Errorf("conntrack %+v", seen.Conntrack)
	}
	checkEmpty(t, n)

	applyPolicy(t, n, `sysctl "net.bridge.bridge-nf-call-iptables" { value = 1 }`)
	if r := onHost(t, n, BridgeOptions{}); !r.Pass || r.Observed.Hooks.Reply.Prerouting == 0 {
		t.Errorf("repaired: %s: %s", r.Lost, r.Summary)
	}
	checkEmpty(t, n)
}

// TestBridgeLosses checks that other causes of loss are named, from the counters.
func TestBridgeLosses(t *testing.T) {
	for _, c := range []struct {
		name string
		want Loss
		lose func(*testing.T, *netns.Namespace)
	}{
		{"forwarding off", RequestUnrouted, func(t *testing.T, n *netns.Namespace) { sysctl(t, n, forwardKey, "0") }},
		{"raw drop", RequestUntranslated, func(t *testing.T, n *netns.Namespace) {
			runIn(t, n, "iptables", "-t", "raw", "-A", "PREROUTING", "-p", "tcp", "--dport", "80", "-j", "DROP")
		}},
		{"notrack", RequestUntranslated, func(t *testing.T, n *netns.Namespace) {
			runIn(t, n, "iptables", "-t", "raw", "-A", "PREROUTING", "-p", "tcp", "--dport", "80", "-j", "NOTRACK")
		}},
		{"bridge drops the request", RequestUnseen, func(t *testing.T, n *netns.Namespace) {
			runIn(t, n, "nft",
				"add table bridge b; add chain bridge b c { type filter hook prerouting priority -350; }; add rule bridge b c tcp dport 80 drop")
		}},
		{"bridge drops the reply", ReplyUnseen, func(t *testing.T, n *netns.Namespace) {
			runIn(t, n, "nft",
				"add table bridge b; add chain bridge b c { type filter hook prerouting priority -350; }; add rule bridge b c tcp sport 80 drop")
		}},
		{"reply dropped in forward", ReplyDropped, func(t *testing.T, n *netns.Namespace) {
			runIn(t, n, "iptables", "-A", "FORWARD", "-p", "tcp", "--sport", "80", "-j", "DROP")
		}},
		{"bridge drops the reply on its way out", ReplyDropped, func(t *testing.T, n *netns.Namespace) {
			runIn(t, n, "nft",
				"add table bridge b; add chain bridge b c { type filter hook postrouting priority 400; }; add rule bridge b c tcp sport 80 drop")
		}},
		{"reply untracked", ReplyUntranslated, func(t *testing.T, n *netns.Namespace) {
			runIn(t, n, "iptables", "-t", "raw", "-A", "PREROUTING", "-p", "tcp", "--sport", "80", "-j", "NOTRACK")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNetns(t)
			sysctl(t, n, forwardKey, "1")
			c.lose(t, n)
			r := onHost(t, n, BridgeOptions{Timeout: 200 * time.Millisecond})
			if r.Pass || r.Lost != c.want {
				t.Errorf("%s, want %s: %s\n%+v", r.Lost, c.want, r.Summary, r.Observed)
			}
			if r.Remedy == "" {
				t.Error("no remedy")
			}
			checkEmpty(t, n)
		})
	}
}

// TestBridgeMasqueraded checks that masquerading of traffic to non-Pod addresses does not hide a loss from the probe.
func TestBridgeMasqueraded(t *testing.T) {
	n := newNetns(t)
	sysctl(t, n, forwardKey, "1")
	runIn(t, n, "iptables", "-t", "nat", "-A", "POSTROUTING", "-j", "MASQUERADE")
	for call, want := range map[string]Loss{"0": ReplyUntranslated, "1": ""} {
		sysctl(t, n, callKey, call)
		if r := onHost(t, n, BridgeOptions{}); r.Lost != want || r.Observed.Masqueraded {
			t.Errorf("call %s: %s: %+v", call, r.Summary, r.Observed)
		}
	}
	runIn(t, n, "iptables", "-t", "nat", "-F", "POSTROUTING")
	checkEmpty(t, n)
}

// TestBridgeMasqueradedFirst checks that the summary mentions masquerading that precedes the probe's rules.
func TestBridgeMasqueradedFirst(t *testing.T) {
	n := newNetns(t)
	sysctl(t, n, forwardKey, "1")
	sysctl(t, n, callKey, "0")
	runIn(t, n, "nft", "add table ip m; add chain ip m c { type nat hook postrouting priority 50; }; add rule ip m c masquerade")
	if r := onHost(t, n, BridgeOptions{}); !r.Pass || !r.Observed.Masqueraded || !strings.Contains(r.Summary, "masquerades") {
		t.Errorf("%s: %+v", r.Summary, r.Observed)
	}
}

func TestBridgeConcurrent(t *testing.T) {
	n := newNetns(t)
	sysctl(t, n, forwardKey, "1")
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			if r, err := probeIn(deadline(t), n, BridgeOptions{Timeout: 5 * time.Second}); err != nil || !r.Pass {
				t.Errorf("%v, %s", err, r.Summary)
			}
		})
	}
	all.Wait()
	checkEmpty(t, n)
}

func TestBridgeCancelled(t *testing.T) {
	n := newNetns(t)
	for _, after := range []time.Duration{0, time.Millisecond, 3 * time.Millisecond, 8 * time.Millisecond, 30 * time.Millisecond,
		200 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(context.Background(), after)
		_, err := probeIn(ctx, n, BridgeOptions{Timeout: time.Hour}) // ip_forward is 0: the probe waits
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after %s: %v", after, err)
		}
		checkEmpty(t, n)
	}
}

// TestBridgeRouted checks that the copy has none of the host's links and routes.
func TestBridgeRouted(t *testing.T) {
	n := newNetns(t)
	sysctl(t, n, forwardKey, "1")
	runIn(t, n, "ip", "addr", "add", "203.0.113.3/28", "dev", "lo")
	runIn(t, n, "ip", "link", "set", "lo", "up")
	if r := onHost(t, n, BridgeOptions{}); !r.Pass {
		t.Error(r.Summary)
	}
}

func TestBridgeOptions(t *testing.T) {
	if _, err := Bridge(deadline(t), BridgeOptions{Timeout: -time.Second}); err == nil || !strings.Contains(err.Error(), "must not be negative") {
		t.Error(err)
	}
}

func BenchmarkBridgeHost(b *testing.B) {
	n := newNetns(b)
	sysctl(b, n, forwardKey, "1")
	benchmark(b, func() (BridgeResult, error) { return probeIn(b.Context(), n, BridgeOptions{}) })
}

// benchmark fails if a healthy data path does not pass.
func benchmark(b *testing.B, probe func() (BridgeResult, error)) {
	var slowest time.Duration
	for b.Loop() {
		start := time.Now()
		r, err := probe()
		must(b, err)
		if !r.Pass {
			b.Fatal(r.Summary)
		}
		slowest = max(slowest, time.Since(start))
	}
	b.ReportMetric(float64(slowest.Milliseconds()), "ms-slowest")
}

// TestBridgeForwardPolicy checks that a policy of DROP, with which a CNI accepts the Pods' range only, is not taken for a
// fault of the bridge, and hides none.
func TestBridgeForwardPolicy(t *testing.T) {
	accepting := func(t *testing.T, n *netns.Namespace, program string) {
		t.Helper()
		runIn(t, n, program, "-P", "FORWARD", "DROP")
		for _, side := range []string{"-s", "-d"} {
			runIn(t, n, program, "-A", "FORWARD", side, "10.244.0.0/16", "-j", "ACCEPT")
		}
	}
	for name, drop := range map[string]func(*testing.T, *netns.Namespace){
		"iptables-nft":    func(t *testing.T, n *netns.Namespace) { accepting(t, n, "iptables-nft") },
		"iptables-legacy": func(t *testing.T, n *netns.Namespace) { accepting(t, n, "iptables-legacy") },
		"nft": func(t *testing.T, n *netns.Namespace) {
			runIn(t, n, "nft", "add table inet f; add chain inet f c { type filter hook forward priority 0; policy drop; }; "+
				"add rule inet f c ip saddr 10.244.0.0/16 accept")
		},
	} {
		for call, want := range map[string]Loss{"1": "", "0": ReplyUntranslated} {
			t.Run(name+" "+call, func(t *testing.T) {
				n := newNetns(t)
				sysctl(t, n, forwardKey, "1")
				sysctl(t, n, callKey, call)
				drop(t, n)
				r, err := probeIn(deadline(t), n, BridgeOptions{Timeout: 200 * time.Millisecond})
				must(t, err)
				if r.Lost != want || len(r.Warnings) > 0 || !strings.Contains(r.Summary, "the CNI must accept") {
					t.Errorf("%s, want %q: %s\n%+v", r.Lost, want, r.Summary, r)
				}
				checkEmpty(t, n)
			})
		}
	}
	n := newNetns(t) // a rule that drops is not a policy
	sysctl(t, n, forwardKey, "1")
	runIn(t, n, "iptables", "-A", "FORWARD", "-p", "tcp", "--dport", "80", "-j", "DROP")
	r, err := probeIn(deadline(t), n, BridgeOptions{Timeout: 200 * time.Millisecond})
	must(t, err)
	if r.Lost != RequestDropped {
		t.Errorf("%s: %s", r.Lost, r.Summary)
	}
}
