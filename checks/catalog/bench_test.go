package catalog_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
	"nodegate/policy"
)

// BenchmarkCheck checks every built-in policy at stage run (except "counters", which waits between two reads), in a network
// namespace with 200 and with 2,000 links. The time should not grow faster than linearly.
func BenchmarkCheck(b *testing.B) {
	hosttest.NeedRoot(b)
	for _, links := range []int{200, 2000} {
		b.Run(fmt.Sprintf("%d-links", links), func(b *testing.B) {
			done := make(chan struct{})
			go func() {
				defer close(done)
				checkWithLinks(b, links)
			}()
			<-done
		})
	}
}

// checkWithLinks must run on its own goroutine: its thread, which is in another namespace, ends with the goroutine.
func checkWithLinks(b *testing.B, links int) {
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		b.Error(err)
		return
	}
	for i := range links / 2 {
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: fmt.Sprintf("veth%d", i)}, PeerName: fmt.Sprintf("eth%d", i)}
		if err := netlink.LinkAdd(veth); err != nil {
			b.Error(err)
			return
		}
	}
	text := ""
	for _, name := range policy.Builtins() {
		if name != "counters" {
			text += fmt.Sprintf("use %q {}\n", name)
		}
	}
	h, err := host.Open("/")
	if err != nil {
		b.Error(err)
		return
	}
	p, diags := policy.Load([]policy.File{{Name: "all.hcl", Text: []byte(text)}}, policy.Options{
		Checks: catalog.Names(), Fact: func(name string) (any, bool) { return h.Fact(b.Context(), name) },
	})
	if diags.HasErrors() {
		b.Error(diags)
		return
	}
	list := catalog.For(p, checks.Run)
	for b.Loop() {
		if r := checks.Inspect(b.Context(), h, checks.Run, list); len(r.Results) < 40 {
			b.Errorf("only %d checks", len(r.Results))
			return
		}
	}
}
