package watch

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/assert"
	"nodegate/internal/host"
	"nodegate/internal/require"
	"nodegate/policy"
)

// watching is a running Watcher with its reports.
type watching struct {
	*Watcher
	h       *host.Host // the test's own host
	mu      sync.Mutex
	reports []string
}

func (w *watching) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reports = append(w.reports, fmt.Sprintf(format, args...))
}

func (w *watching) heard(text string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Count(strings.Join(w.reports, "\n"), text)
}

// start runs a Watcher on the real kernel until the test ends.
func start(t testing.TB, text string, set func(*Watcher)) *watching {
	t.Helper()
	var doors []*host.Host
	for range 3 {
		h, err := host.Open("/")
		require.NoError(t, err)
		t.Cleanup(h.Close)
		doors = append(doors, h)
	}
	w := &watching{h: doors[2]}
	ready := make(chan struct{})
	w.Watcher = &Watcher{
		Host: doors[0], Observer: doors[1], Every: 200 * time.Millisecond,
		Policy:     func(bool) (*policy.Policy, error) { return load(text) },
		BreakGlass: func() string { return "" },
		Ready:      func(Status) { close(ready) },
		Corrected: func(c report.Correction) {
			w.note("corrected %s %s new=%t: %s -> %s", c.Name, c.Link, c.New, c.Was, c.Now)
		},
		Wrote:    func(c report.AppliedChange) { w.note("wrote %s: %v", c.Name, c.Writes) },
		Changed:  func(r checks.Result) { w.note("%s %s", r.Verdict, r.Name) },
		Fighting: func(f report.Fight, over bool) { w.note("fight %s over=%t: %s", f.Name, over, f.Writer) },
		Trouble:  func(line string) { w.note("trouble %s", line) },
	}
	if set != nil {
		set(w.Watcher)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-ended, "watch ended with")
		if t.Failed() {
			t.Logf("reported last:\n%s", strings.Join(w.reports[max(0, len(w.reports)-20):], "\n"))
		}
	})
	select {
	case <-ready:
	case <-time.After(20 * time.Second):
		t.Fatal("watch is not ready after 20 s")
	}
	return w
}

func load(text string) (*policy.Policy, error) {
	p, diags := policy.Load([]policy.File{{Name: "test.hcl", Text: []byte(text)}}, policy.Options{Checks: catalog.Known().Checks})
	if diags.HasErrors() {
		return nil, diags
	}
	return p, nil
}

// eventually waits until the condition is true, or fails.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Microsecond) {
		if is() {
			return
		}
	}
	t.Fatalf("not so within 20 s: %s", what)
}

const feature = "tx-checksum-ip-generic"

// off reports whether the link's offload is off in the kernel.
func (w *watching) off(link string) bool {
	f, err := w.h.Links.Features(context.Background(), link)
	return err == nil && !f[feature].Active
}

func vxlan(name string, id int) *netlink.Vxlan {
	return &netlink.Vxlan{LinkAttrs: netlink.LinkAttrs{Name: name}, VxlanId: id, Port: 8472}
}

func add(t testing.TB, l netlink.Link) {
	t.Helper()
	require.NoError(t, netlink.LinkAdd(l), "adding %s", l.Attrs().Name)
}

func remove(t testing.TB, l netlink.Link) {
	t.Helper()
	require.NoError(t, netlink.LinkDel(l), "removing %s", l.Attrs().Name)
}

const vxlanPolicy = `
link "vxlan" {
  match { kind = "vxlan" }
  offload = { tx-checksum-ip-generic = false }
}
`
