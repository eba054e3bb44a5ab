package datapath

import (
	"testing"
	"time"

	"nodegate/host"
)

// onHost probes as Bridge does on the host, with a namespace in its place.
func onHost(t testing.TB, router *host.Netns, o BridgeOptions) BridgeResult {
	t.Helper()
	start := time.Now()
	r, err := bridgeOn(deadline(t), router, o)
	must(t, err)
	for _, w := range r.Warnings {
		t.Errorf("warning: %s", w)
	}
	r.Duration = Millis(time.Since(start))
	return r
}

func TestSmoke(t *testing.T) {
	n := newNetns(t)
	sysctl(t, n, forwardKey, "1")
	for range 3 {
		for _, call := range []string{"1", "0"} {
			for _, b := range []string{"nftables", "iptables"} {
				sysctl(t, n, callKey, call)
				r := onHost(t, n, BridgeOptions{Backend: b})
				t.Logf("%s %s %+v\n%+v", call, b, r, r.Observed.Conntrack)
			}
		}
	}
	sysctl(t, n, forwardKey, "0")
	sysctl(t, n, callKey, "1")
	r := onHost(t, n, BridgeOptions{})
	t.Logf("%+v\n%+v", r, r.Observed.Conntrack)
	sysctl(t, n, callKey, "0")
	r = onHost(t, n, BridgeOptions{})
	t.Logf("%+v\n%+v", r, r.Observed.Conntrack)
}

func BenchmarkBridgeHealthyScratch(b *testing.B) {
	needRoot(b)
	for b.Loop() {
		r, err := Bridge(b.Context(), BridgeOptions{InScratch: true})
		must(b, err)
		if !r.Holds {
			b.Fatal(r.Summary)
		}
	}
}

func BenchmarkBridgeHealthyHost(b *testing.B) {
	n := newNetns(b)
	sysctl(b, n, forwardKey, "1")
	for b.Loop() {
		r, err := bridgeOn(b.Context(), n, BridgeOptions{})
		must(b, err)
		if !r.Holds {
			b.Fatal(r.Summary)
		}
	}
}
