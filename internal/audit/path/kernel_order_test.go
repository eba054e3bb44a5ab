package path_test

import (
	"net/netip"
	"strings"
	"testing"

	"nodegate/internal/audit/path"
	"nodegate/internal/require"
	"nodegate/internal/ruleset"
)

// TestKernelOrder checks that of two translations with one priority the kernel takes the later one, which the rules do
// not show: the walk has both ends, and is sure of neither.
func TestKernelOrder(t *testing.T) {
	w := newWire(t)
	const save = "*nat\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -d 10.96.0.1/32 -p udp -j DNAT --to-destination 192.0.2.9:80\nCOMMIT\n"
	const nft = `table ip t { chain c { type nat hook output priority -100; ip daddr 10.96.0.1 udp dport 53 dnat to 192.0.2.77; }; }`
	load := map[string]func(){
		"iptables": func() { w.run(t, w.node, save, "iptables-nft-restore") },
		"nft":      func() { w.run(t, w.node, nft, "nft", "-f", "-") },
	}
	for i, first := range []string{"iptables", "nft"} {
		w.run(t, w.node, "flush ruleset", "nft", "-f", "-")
		second := map[string]string{"iptables": "nft", "nft": "iptables"}[first]
		load[first]()
		load[second]()
		set, err := ruleset.Parse("iptables-nft-save", strings.NewReader(w.run(t, w.node, "", "iptables-nft-save")))
		require.NoError(t, err)
		tables := w.overNetlink(t)
		w.run(t, w.node, observer, "nft", "-f", "-")
		p := packet{true, netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), uint16(20000+i)), netip.MustParseAddrPort("10.96.0.1:53")}
		w.send(t, []packet{p})
		want := map[string]string{"iptables": "out 192.0.2.9:80 mark 0", "nft": "out 192.0.2.77:53 mark 0"}[second]
		if got := w.seen(t, "in", "out")[p.from.Port()]; got != want {
			t.Fatalf("%s first: the kernel: %q, want %q", first, got, want)
		}
		rules := path.New([]*ruleset.Set{set, tables}, ruleset.IPv4, path.Node{Own: func(netip.Addr) path.Answer { return path.No }})
		ends, sure := walked(rules.Walk(path.Packet{Source: path.Addr(p.from.Addr()), Destination: path.Addr(p.to.Addr()), Protocol: "udp",
			SourcePort: p.from.Port(), Port: 53, State: path.StateNew, Own: true}, "", nil))
		if sure || !ends[want] || len(ends) != 2 {
			t.Errorf("%s first: the walk: %v, sure: %v", first, ends, sure)
		}
	}
}

// TestOrderOfTables checks that the walk does not assume an order of two tables of nft.
func TestOrderOfTables(t *testing.T) {
	w := newWire(t)
	for _, table := range []string{"a", "b"} {
		w.run(t, w.node, "table ip "+table+" { chain c { type nat hook output priority -100; ip daddr 10.96.0.1 udp dport 53 dnat to 192.0.2."+
			map[string]string{"a": "7", "b": "8"}[table]+"; }; }", "nft", "-f", "-")
	}
	set, err := ruleset.Parse("nft", strings.NewReader(w.run(t, w.node, "", "nft", "-j", "list", "ruleset")))
	require.NoError(t, err)
	rules := path.New([]*ruleset.Set{set}, ruleset.IPv4, path.Node{Own: func(netip.Addr) path.Answer { return path.No }})
	ends, sure := walked(rules.Walk(path.Packet{Destination: path.Addr(netip.MustParseAddr("10.96.0.1")), Protocol: "udp",
		Port: 53, State: path.StateNew, Own: true}, "", nil))
	if sure || !ends["out 192.0.2.7:53 mark 0"] || !ends["out 192.0.2.8:53 mark 0"] || len(ends) != 2 {
		t.Errorf("%v, sure: %v", ends, sure)
	}
}
