package netns

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"nodegate/internal/host/program"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func scratch(t *testing.T) (*Namespace, context.Context) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes a network namespace")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	n, err := New(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	return n, ctx
}

// What a thread has entered stays with it: the process, and every other thread,
// is where it was.
func TestNetnsStaysApart(t *testing.T) {
	before, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	n, ctx := scratch(t)
	var tid int
	var inside string
	if err := n.Do(ctx, func() (err error) {
		tid = unix.Gettid()
		inside, err = os.Readlink("/proc/thread-self/ns/net")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if inside == before || tid == os.Getpid() {
		t.Fatalf("thread %d is in %s", tid, inside)
	}
	n.Close()
	n.Close()
	if err := n.Do(ctx, func() error { return nil }); !errors.Is(err, os.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for range 400 {
		if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", tid)); err != nil {
			break
		}
		<-tick.C
	}
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		if at, err := os.Readlink("/proc/self/task/" + task.Name() + "/ns/net"); err == nil && at != before {
			t.Errorf("thread %s is left in %s", task.Name(), at)
		}
	}
}

func TestNetnsDoneContext(t *testing.T) {
	n, ctx := scratch(t)
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	if err := n.Do(ctx, func() error { t.Error("it ran"); return nil }); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := New(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestNetnsErrors(t *testing.T) {
	n, ctx := scratch(t)
	if _, err := n.Sysctl(ctx, "net/ipv4/no_such_key"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if err := n.SetSysctl(ctx, "net/ipv4/ip_forward", "x"); err == nil || err.Error() != "setting net.ipv4.ip_forward=x: invalid argument" {
		t.Error(err)
	}
	if err := n.SetUp(ctx, "none"); !errors.Is(err, os.ErrNotExist) || !strings.HasPrefix(err.Error(), "setting up none: ") {
		t.Error(err)
	}
	if err := n.DeleteLinks(ctx, "none"); err != nil {
		t.Error(err)
	}
	if err := n.DeleteGroup(ctx, 77); err != nil {
		t.Error(err)
	}
	if err := errors.Join(n.AddBridge(ctx, "b0", nil, 0), n.AddBridge(ctx, "b0", nil, 0)); !errors.Is(err, os.ErrExist) {
		t.Error(err)
	}
	if lock, err := n.Lock(ctx, "one"); err != nil {
		t.Error(err)
	} else if _, err := n.Lock(ctx, "one"); !errors.Is(err, unix.EADDRINUSE) {
		t.Error(err)
	} else if err := lock.Close(); err != nil {
		t.Error(err)
	} else if lock, err = n.Lock(ctx, "one"); err != nil {
		t.Error(err)
	} else {
		_ = lock.Close()
	}
}

// Where nf_tables is not there iptables is asked; where it refuses it is not.
func TestFirstRedirect(t *testing.T) {
	spec := RedirectSpec{Name: "test"}
	second := func(_ context.Context, s RedirectSpec) (Redirect, error) { return &iptablesRedirect{}, nil }
	for _, c := range []struct {
		first error
		want  string
	}{
		{wrap("making nftables table", "test", unix.EOPNOTSUPP), BackendIptables},
		{wrap("making nftables table", "test", unix.EPROTONOSUPPORT), BackendIptables},
		{wrap("making nftables table", "test", unix.EPERM), ""},
	} {
		r, err := firstRedirect(t.Context(), spec, func(context.Context, RedirectSpec) (Redirect, error) { return nil, c.first }, second)
		if c.want == "" {
			if !errors.Is(err, os.ErrPermission) || !strings.Contains(err.Error(), "CAP_NET_ADMIN") {
				t.Errorf("%v: %v", c.first, err)
			}
		} else if err != nil || r.Backend() != c.want {
			t.Errorf("%v: %v", c.first, err)
		}
	}
	both := func(context.Context, RedirectSpec) (Redirect, error) { return nil, unix.EOPNOTSUPP }
	if r, err := firstRedirect(t.Context(), spec, both, both); r != nil || err == nil {
		t.Errorf("%v, %v", r, err)
	}
}

// What is left of a redirection is taken over, found by name, and removed; of
// either backend, and without making a table to look into.
func TestIptablesLeftovers(t *testing.T) {
	for _, name := range []string{"iptables-nft", "iptables-legacy"} {
		t.Run(name, func(t *testing.T) {
			n, ctx := scratch(t)
			if _, err := program.Find(name); err != nil {
				t.Skip(err)
			}
			if names, err := n.Redirects(ctx, "left", true); err != nil || names != nil {
				t.Errorf("%v, %v", names, err)
			}
			if err := n.Do(ctx, func() error {
				nft, err := nftTables()
				if len(nft)+len(legacyTables()) > 0 {
					t.Errorf("looking made tables: %v %v", nft, legacyTables())
				}
				return err
			}); err != nil {
				t.Error(err)
			}
			spec := RedirectSpec{Name: "left1", Service: netip.MustParseAddrPort("198.51.100.10:80"),
				Endpoint: netip.MustParseAddrPort("203.0.113.3:80"), Client: netip.MustParseAddr("203.0.113.2")}
			for range 2 {
				r, err := n.addRedirectWith(ctx, name, spec)
				if err != nil {
					t.Fatal(err)
				}
				if hits, err := r.Hits(ctx); err != nil || hits != (Hits{}) {
					t.Errorf("%+v, %v", hits, err)
				}
			}
			if names, err := n.Redirects(ctx, "left", true); err != nil || !slices.Equal(names, []string{"left1"}) {
				t.Errorf("%v, %v", names, err)
			}
			if err := n.RemoveRedirect(ctx, "left1", true); err != nil {
				t.Error(err)
			}
			if names, err := n.Redirects(ctx, "left", true); err != nil || names != nil {
				t.Errorf("%v, %v", names, err)
			}
		})
	}
}

func TestParsePorts(t *testing.T) {
	for text, want := range map[string][]uint16{
		"": nil, "5": {5}, "1,5-7": {1, 5, 6, 7}, "65534-65535": {65534, 65535}, "7-5": nil,
	} {
		if got, err := parsePorts(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"x", "1-", "70000", "-1"} {
		if got, err := parsePorts(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestPacketCounts(t *testing.T) {
	got := packetCounts([]string{
		"-N c",
		"-A c -d 198.51.100.10/32 -p tcp -m tcp --dport 80 -c 5 300",
		"-A c -s 203.0.113.3/32 -p tcp -m tcp --sport 80 -c 7 420 -j DNAT --to-destination 1.2.3.4:5",
		"-A c -c x",
	})
	if !slices.Equal(got, []uint64{5, 7}) {
		t.Error(got)
	}
}

func TestParseSegment(t *testing.T) {
	packet := []byte{
		0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0, 203, 0, 113, 3, 198, 51, 100, 10,
		0, 80, 0xc0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x12, 0, 0, 0, 0, 0, 0,
	}
	want := Segment{From: netip.MustParseAddrPort("203.0.113.3:80"), To: netip.MustParseAddrPort("198.51.100.10:49152"),
		Flags: SYN | ACK, Seq: 1, Ack: 2}
	if got, ok := parseSegment(packet); !ok || got != want {
		t.Errorf("%+v", got)
	}
}

func FuzzParseSegment(f *testing.F) {
	f.Add([]byte{0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0, 203, 0, 113, 3, 198, 51, 100, 10, 0, 80, 0xc0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x12, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{0x4f, 0, 0, 20, 0, 0, 0, 0, 64, 6, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8})
	f.Fuzz(func(t *testing.T, b []byte) { parseSegment(b) })
}

func FuzzParsePorts(f *testing.F) {
	f.Add("1,5-7\t32768-60999")
	f.Add("30000-32767,")
	f.Fuzz(func(t *testing.T, text string) {
		ports, err := parsePorts(text)
		if err == nil && len(ports) > 65536*(1+strings.Count(text, ",")) {
			t.Fatalf("%d ports in %q", len(ports), text)
		}
	})
}
