package ipvs

import (
	"errors"
	"io"
	"net/netip"
	"reflect"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"nodegate/internal/assert"
	"nodegate/internal/require"
	"nodegate/internal/ruleset"
)

// message is one of the kernel's (net/netfilter/ipvs/ip_vs_ctl.c): a generic header, and attributes in one of them.
func message(t testing.TB, in uint16, attributes func(e *netlink.AttributeEncoder)) []byte {
	t.Helper()
	e := netlink.NewAttributeEncoder()
	e.Nested(in, func(e *netlink.AttributeEncoder) error { attributes(e); return nil })
	b, err := e.Encode()
	require.NoError(t, err)
	return append([]byte{1, version, 0, 0}, b...)
}

func union(address string) []byte {
	b := make([]byte, 16)
	copy(b, netip.MustParseAddr(address).AsSlice())
	return b
}

// service is a virtual server as the kernel sends it.
func service(t testing.TB, family, proto uint16, address string, flags uint32) []byte {
	return message(t, aService, func(e *netlink.AttributeEncoder) {
		e.Uint16(aFamily, family)
		e.Uint16(aProtocol, proto)
		e.Bytes(aAddress, union(address))
		e.Bytes(aPort, []byte{0x01, 0xbb})
		e.String(aScheduler, "rr")
		e.Bytes(aFlags, append([]byte{byte(flags), 0, 0, 0}, 0xff, 0xff, 0xff, 0xff))
		e.Uint32(aTimeout, 10800)
		e.Nested(10, func(e *netlink.AttributeEncoder) error { e.Uint32(1, 7); return nil }) // statistics, which have attribute 1 too
	})
}

func destination(t testing.TB, family uint16, address string, weight uint32) []byte {
	return message(t, aDestination, func(e *netlink.AttributeEncoder) {
		e.Bytes(aRealAddress, union(address))
		e.Bytes(aRealPort, []byte{0x1f, 0x90})
		e.Uint32(3, 0)
		e.Uint32(aWeight, weight)
		if family != 0 {
			e.Uint16(aRealFamily, family)
		}
	})
}

func TestDecode(t *testing.T) {
	for _, c := range []struct {
		message []byte
		want    ruleset.VirtualServer
		ok      bool
	}{
		{service(t, unix.AF_INET, unix.IPPROTO_TCP, "10.96.0.1", 2), ruleset.VirtualServer{Address: netip.MustParseAddrPort("10.96.0.1:443"),
			Protocol: "tcp", Scheduler: "rr"}, true},
		{service(t, unix.AF_INET6, unix.IPPROTO_UDP, "fd00::1", 3), ruleset.VirtualServer{Address: netip.MustParseAddrPort("[fd00::1]:443"),
			Protocol: "udp", Scheduler: "rr", Affinity: 10800}, true},
		{service(t, unix.AF_INET, unix.IPPROTO_ESP, "10.96.0.1", 2), ruleset.VirtualServer{}, false},
		{message(t, aService, func(e *netlink.AttributeEncoder) { e.Uint16(aFamily, unix.AF_INET); e.Uint32(aMark, 5) }),
			ruleset.VirtualServer{}, false},
	} {
		got, ok, err := decodeServer(c.message)
		assert.True(t, err == nil && ok == c.ok && reflect.DeepEqual(got, c.want), "%+v %v %v, want %+v", got, ok, err, c.want)
	}
	for _, c := range []struct {
		family uint16
		v4     bool
		ip     string
	}{{0, true, "10.0.0.1"}, {unix.AF_INET, true, "10.0.0.1"}, {0, false, "fd00::7"}, {unix.AF_INET6, true, "fd00::7"}} {
		got, err := decodeDestination(destination(t, c.family, c.ip, 5), c.v4)
		want := ruleset.RealServer{Address: netip.AddrPortFrom(netip.MustParseAddr(c.ip), 8080), Weight: 5}
		assert.True(t, err == nil && got == want, "%+v %v, want %+v", got, err, want)
	}
	asked := ruleset.VirtualServer{Address: netip.MustParseAddrPort("[fd00::1]:443"), Protocol: "sctp"}
	if got, ok, err := decodeServer(append(make([]byte, header), encode(&asked)...)); err != nil || !ok || !reflect.DeepEqual(got, asked) {
		t.Errorf("asks for %+v %v, want %+v", got, err, asked)
	}
}

// TestMalformed: what is cut or has another size is an error, never half of an answer.
func TestMalformed(t *testing.T) {
	whole := service(t, unix.AF_INET, unix.IPPROTO_TCP, "10.96.0.1", 2)
	for n := range whole {
		s, ok, err := decodeServer(whole[:n])
		assert.True(t, err != nil, "the first %d bytes of a virtual server are %+v %v", n, s, ok)
	}
	real := destination(t, unix.AF_INET, "10.0.0.1", 1)
	for n := range real {
		s, err := decodeDestination(real[:n], true)
		assert.True(t, err != nil, "the first %d bytes of a real server are %+v", n, s)
	}
	_, _, err := decodeServer(nil)
	assert.True(t, errors.Is(err, io.ErrUnexpectedEOF), "%v", err)
	number, ok := decodeFamily(append(make([]byte, header), 6, 0, 2, 0, 'I', 'P', 0, 0), "IP")
	assert.True(t, !ok, "%v", number)
}

// setMessage is a message with one entry of a set (net/netfilter/ipset/ip_set_hash_ipportnet.c). Numbers are in the network's order,
// and marked so, as addresses are marked as nested.
func setMessage(t testing.TB, proto uint8, address string, bits uint8) []byte {
	t.Helper()
	ip := netip.MustParseAddr(address)
	union := func(e *netlink.AttributeEncoder) error {
		kind := uint16(1)
		if ip.Is6() {
			kind = 2
		}
		e.Bytes(kind|unix.NLA_F_NET_BYTEORDER, ip.AsSlice())
		return nil
	}
	e := netlink.NewAttributeEncoder()
	e.Uint8(aSetProtocol, setProtocol)
	e.String(aSetName, sourceSets[0].Ranges)
	e.Nested(aSetEntries, func(e *netlink.AttributeEncoder) error {
		e.Nested(aSetData, func(e *netlink.AttributeEncoder) error {
			e.Nested(aIP, union)
			e.Nested(aIP2, union)
			e.Bytes(aSetPort|unix.NLA_F_NET_BYTEORDER, []byte{0x01, 0xbb})
			e.Uint8(aCIDR2, bits)
			e.Uint8(aProto, proto)
			return nil
		})
		return nil
	})
	b, err := e.Encode()
	require.NoError(t, err)
	return append([]byte{unix.AF_INET, unix.NFNETLINK_V0, 0, 0}, b...)
}

func TestDecodeEntries(t *testing.T) {
	at := func(address, source string) []entry {
		return []entry{{ruleset.Portal{Address: netip.MustParseAddrPort(address), Protocol: "tcp"}, netip.MustParsePrefix(source)}}
	}
	for _, c := range []struct {
		message []byte
		want    []entry
		fails   bool
	}{
		{setMessage(t, unix.IPPROTO_TCP, "10.0.0.1", 8), at("10.0.0.1:443", "10.0.0.1/8"), false},
		{setMessage(t, unix.IPPROTO_TCP, "fd00::1", 128), at("[fd00::1]:443", "fd00::1/128"), false},
		{setMessage(t, unix.IPPROTO_ESP, "10.0.0.1", 8), nil, false},
		{setMessage(t, unix.IPPROTO_TCP, "10.0.0.1", 33), nil, true},
		{nil, nil, true},
	} {
		got, err := decodeEntries(nil, c.message)
		assert.True(t, reflect.DeepEqual(got, c.want) && (err != nil) == c.fails, "%v, %v, want %v", got, err, c.want)
	}
	whole := setMessage(t, unix.IPPROTO_TCP, "10.0.0.1", 8)
	for n := range whole {
		got, _ := decodeEntries(nil, whole[:n])
		assert.True(t, got == nil, "the first %d bytes of a set are %+v", n, got)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(service(f, unix.AF_INET, unix.IPPROTO_TCP, "10.96.0.1", 3))
	f.Add(service(f, unix.AF_INET6, unix.IPPROTO_UDP, "fd00::1", 2))
	f.Add(destination(f, unix.AF_INET, "10.0.0.1", 1))
	f.Add(setMessage(f, unix.IPPROTO_TCP, "10.0.0.1", 8))
	f.Add(setMessage(f, unix.IPPROTO_SCTP, "fd00::1", 64))
	f.Fuzz(func(t *testing.T, b []byte) {
		if all, err := decodeEntries(nil, b); err == nil {
			for _, e := range all {
				assert.True(t, e.Address.IsValid() && e.Protocol != "", "%+v", e)
			}
		}
		_, _ = decodeFamily(b, "IPVS")
		s, ok, err := decodeServer(b)
		assert.True(t, !ok || err == nil && s.Address.IsValid() && s.Protocol != "", "%+v %v", s, err)
		if s, err := decodeDestination(b, true); err == nil && !s.Address.IsValid() {
			t.Errorf("%+v", s)
		}
	})
}
