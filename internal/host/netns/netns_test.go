package netns

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFirstRedirect: iptables is tried if nf_tables does not exist, but not if a permission is
// missing.
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
	f.Add([]byte{
		0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0, 203, 0, 113, 3, 198, 51, 100, 10,
		0, 80, 0xc0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x12, 0, 0, 0, 0, 0, 0,
	})
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
