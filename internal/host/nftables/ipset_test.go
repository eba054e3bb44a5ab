package nftables

import (
	"encoding/binary"
	"slices"
	"testing"

	"nodegate/internal/ruleset"
)

// TestAddElement adds one element to sets of several kinds.
func TestAddElement(t *testing.T) {
	attr := func(kind uint16, value ...byte) []byte {
		b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
		b = append(binary.NativeEndian.AppendUint16(b, kind), value...)
		return append(b, make([]byte, -len(b)&3)...)
	}
	ip := attr(ipsetIP, attr(1, 10, 244, 0, 0)...)
	net := slices.Concat(ip, attr(ipsetCIDR, 24))
	noMatch := slices.Concat(net, attr(ipsetFlags, 0, 0, 0, ipsetNoMatch))
	for _, c := range []struct {
		what    string
		set     ruleset.IPSet
		element []byte
		ok      bool
		spans   int
		partial bool
		members []string
	}{
		{what: "an address", element: ip, ok: true, spans: 1},
		{what: "a network", element: net, ok: true, spans: 1},
		{what: "a network that is taken out", element: noMatch, ok: true, partial: true},
		{what: "one with a port that is taken out", set: ruleset.IPSet{Ports: []ruleset.IPSetPort{}}, element: noMatch, partial: true},
		{what: "an element without a port", set: ruleset.IPSet{Ports: []ruleset.IPSetPort{}}, element: net},
		{what: "a network at a link", set: ruleset.IPSet{Partial: true}, element: net, ok: true, spans: 1, partial: true},
		{what: "a set in a list", set: ruleset.IPSet{Members: []string{}}, element: attr(ipsetMember, []byte("pods\x00")...), ok: true,
			members: []string{"pods"}},
		{what: "no address", element: attr(ipsetPort, 0, 53)},
	} {
		ok := addElement(&c.set, c.element)
		if ok != c.ok || len(c.set.Spans) != c.spans || c.set.Partial != c.partial || !slices.Equal(c.set.Members, c.members) {
			t.Errorf("%s: %v, %+v", c.what, ok, c.set)
		}
	}
}
