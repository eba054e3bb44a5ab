package ipvs_test

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"reflect"
	"testing"

	vishvananda "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/host/ipvs"
	"nodegate/internal/host/netns"
	"nodegate/internal/require"
	"nodegate/internal/ruleset"
)

// addEntry adds an entry to a set as kube-proxy does: 192.0.2.1,tcp:80 or, with a range, 192.0.2.1,tcp:80,10.0.0.0/8.
func addEntry(set, address string, proto uint8, ranges ...string) error {
	at := netip.MustParseAddrPort(address)
	port := at.Port()
	e := &vishvananda.IPSetEntry{IP: at.Addr().AsSlice(), Port: &port, Protocol: &proto}
	if len(ranges) == 0 {
		return vishvananda.IpsetAdd(set, e)
	}
	for _, r := range ranges {
		_, n, err := net.ParseCIDR(r)
		if err != nil {
			return err
		}
		bits, _ := n.Mask.Size()
		e.IP2, e.CIDR2 = n.IP, uint8(bits)
		if err := vishvananda.IpsetAdd(set, e); err != nil {
			return err
		}
	}
	return nil
}

// TestSources: the kernel's own sets are read, of both families, however many entries they have. A kernel that has none still has none
// when it has been asked.
func TestSources(t *testing.T) {
	hosttest.NeedRoot(t)
	if _, err := os.Stat("/sys/module/ip_set"); err != nil {
		got, err := ipvs.Sources(t.Context())
		_, now := os.Stat("/sys/module/ip_set")
		assert.True(t, got == nil && err == nil && now != nil, "a kernel without sets: %v, %v; loaded: %t", got, err, now == nil)
		return
	}
	n, err := netns.New(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { n.Close() })
	portal := func(address, proto string) ruleset.Portal {
		return ruleset.Portal{Address: netip.MustParseAddrPort(address), Protocol: proto}
	}
	many := map[ruleset.Portal][]netip.Prefix{
		portal("192.0.2.1:80", "tcp"):      {netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.1/32")},
		portal("192.0.2.2:53", "udp"):      nil,
		portal("[2001:db8::1]:443", "tcp"): {netip.MustParsePrefix("2001:db8:1::/48")},
	}
	create := func(name, kind string, family uint8) error {
		return vishvananda.IpsetCreate(name, kind, vishvananda.IpsetCreateOptions{Family: family, Replace: true})
	}
	err = n.Do(t.Context(), func() error {
		if got, err := ipvs.Sources(t.Context()); got != nil || err != nil {
			t.Errorf("no sets: %v, %v", got, err)
		}
		for i, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
			err := errors.Join(create(ipvs.SourceSets[i].Closed, "hash:ip,port", family), create(ipvs.SourceSets[i].Ranges, "hash:ip,port,net", family))
			if err != nil {
				return err
			}
		}
		if got, err := ipvs.Sources(t.Context()); got == nil || len(got) != 0 || err != nil {
			t.Errorf("empty sets: %v, %v", got, err)
		}
		closed, ranges := ipvs.SourceSets[0].Closed, ipvs.SourceSets[0].Ranges
		err := errors.Join(addEntry(closed, "192.0.2.1:80", unix.IPPROTO_TCP),
			addEntry(ranges, "192.0.2.1:80", unix.IPPROTO_TCP, "172.16.0.1/32", "10.0.0.0/8"), addEntry(closed, "192.0.2.2:53", unix.IPPROTO_UDP),
			addEntry(ranges, "192.0.2.9:80", unix.IPPROTO_TCP, "10.0.0.0/8"), // not closed
			addEntry(ipvs.SourceSets[1].Closed, "[2001:db8::1]:443", unix.IPPROTO_TCP),
			addEntry(ipvs.SourceSets[1].Ranges, "[2001:db8::1]:443", unix.IPPROTO_TCP, "2001:db8:1::/48"))
		for i := range 2000 {
			address := netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)}), 80)
			err = errors.Join(err, addEntry(closed, address.String(), unix.IPPROTO_SCTP))
			many[ruleset.Portal{Address: address, Protocol: "sctp"}] = nil
		}
		if err != nil {
			return err
		}
		got, err := ipvs.Sources(t.Context())
		assert.True(t, reflect.DeepEqual(got, many), "%d portals, want %d: %v", len(got), len(many), got)
		return err
	})
	assert.NoError(t, err)
}
