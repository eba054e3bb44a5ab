package path_test

import (
	"net/netip"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/audit/path"
	"nodegate/internal/ruleset"
)

func TestRoutes(t *testing.T) {
	to := func(prefix, link string) path.Route { return path.Route{To: netip.MustParsePrefix(prefix), Link: link} }
	routes := path.NewRoutes([]path.Route{to("0.0.0.0/0", "eth0"), to("10.244.0.0/24", "cni0"), to("10.244.0.7/32", "cali7"),
		to("10.244.2.0/24", "eth0"), to("10.244.2.0/24", "eth1"), to("fd00::/8", "eth2"), to("10.244.3.0/26", "")})
	for address, want := range map[string]path.Route{
		"192.0.2.1": to("0.0.0.0/0", "eth0"), "10.244.0.9": to("10.244.0.0/24", "cni0"), "10.244.0.7": to("10.244.0.7/32", "cali7"),
		"10.244.2.9": to("10.244.2.0/24", ""), "fd00::1": to("fd00::/8", "eth2"), "2001:db8::1": {}, "10.244.3.1": to("10.244.3.0/26", ""),
	} {
		assert.Equal(t, routes.Find(netip.MustParseAddr(address)), want, "%s", address)
	}
}

// TestWalkOut: the caller gives the link by which a packet leaves, until a translation leads it elsewhere. In OUTPUT, a
// translated packet still has the link of its first destination.
func TestWalkOut(t *testing.T) {
	rules := path.New(parse(t, save("filter", "-A FORWARD -o eth0 -j DROP\n-A OUTPUT -o eth0 -j DROP"),
		save("nat", "-A PREROUTING -p udp -j DNAT --to-destination 10.244.0.4:53"),
		save("mangle", "-A OUTPUT -d 10.244.0.4/32 -j DROP\n-A POSTROUTING -o cni0 -j DROP")), ruleset.IPv4, path.Node{
		Own: func(netip.Addr) path.Answer { return path.No }, Route: func(netip.Addr) string { return "cni0" }})
	pod := path.Packet{State: path.StateNew, ToNode: path.No, Protocol: "tcp", Out: "eth0"}
	translated := path.Packet{State: path.StateNew, Protocol: "udp", Destination: netip.MustParsePrefix("10.244.0.4/32"), ToNode: path.No, Own: true}
	udp := pod
	udp.Protocol = "udp"
	for what, c := range map[string]struct {
		ways []path.Way
		want string
	}{
		"TCP": {rules.Walk(pod, "", nil), "1.00 dropped | FORWARD filter FORWARD DROP\n"},
		"UDP": {rules.Walk(udp, "", nil), "1.00 dropped to 10.244.0.4:53 | PREROUTING nat PREROUTING DNAT | POSTROUTING mangle POSTROUTING DROP\n"},
		"translated": {rules.Translated(translated), "? dropped to 10.244.0.4:0 | OUTPUT filter OUTPUT DROP if -o eth0\n" +
			"? dropped to 10.244.0.4:0 | POSTROUTING mangle POSTROUTING DROP\n"},
	} {
		assert.Equal(t, show(c.ways), c.want, "%s", what)
	}
}
