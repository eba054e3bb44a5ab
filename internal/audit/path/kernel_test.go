package path_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"nodegate/internal/audit/path"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/host/netns"
	"nodegate/internal/host/nftables"
	"nodegate/internal/require"
	"nodegate/internal/ruleset"
)

var (
	ruleSets = flag.Int("rule-sets", 60, "number of random rule sets of TestKernel, over all backends")
	seed     = flag.Uint64("seed", 1, "seed of TestKernel")
)

// packetsEach is the number of packets through each rule set.
const packetsEach = 50

// wire is a node in a namespace, with a Pod behind a veth and an uplink on which packets vanish.
type wire struct {
	node, pod *netns.Namespace
}

func newWire(t *testing.T) wire {
	hosttest.NeedRoot(t)
	for _, program := range []string{"ip", "nft", "iptables-nft-restore", "iptables-legacy-restore", "sysctl"} {
		hosttest.NeedProgram(t, program)
	}
	var w wire
	for _, n := range []**netns.Namespace{&w.node, &w.pod} {
		one, err := netns.New(t.Context())
		require.NoError(t, err)
		t.Cleanup(one.Close)
		*n = one
	}
	podFile := ""
	err := w.pod.Do(t.Context(), func() error {
		podFile = fmt.Sprintf("/proc/%d/task/%d/ns/net", unix.Getpid(), unix.Gettid())
		return nil
	})
	require.NoError(t, err)
	w.run(t, w.node, "", "sh", "-ec", `ip link add pod0 type veth peer name eth0 netns `+podFile+`
ip link add up0 type veth peer name up1 netns `+podFile+`; ip link set up0 arp off; ip link set up0 up; ip address add 192.0.2.1/24 dev up0; ip route add default dev up0
ip link set pod0 up; ip address add 10.1.0.1/24 dev pod0
echo 1 > /proc/sys/net/ipv4/ip_forward; echo 0 > /proc/sys/net/ipv4/conf/all/rp_filter; echo 0 > /proc/sys/net/ipv4/conf/pod0/rp_filter`)
	w.run(t, w.pod, "", "sh", "-ec", `ip link set up1 up; ip link set eth0 up; ip address add 10.1.0.2/24 dev eth0; ip address add 10.1.0.3/24 dev eth0
ip route add default via 10.1.0.1`)
	return w
}

func (w wire) run(t *testing.T, in *netns.Namespace, stdin string, args ...string) string {
	t.Helper()
	out := ""
	err := in.Do(t.Context(), func() error {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Stdin = strings.NewReader(stdin)
		b, err := cmd.CombinedOutput()
		if out = string(b); err != nil {
			return fmt.Errorf("%v: %w: %s\n%s", args, err, b, stdin)
		}
		return nil
	})
	require.NoError(t, err)
	return out
}

// observer records each packet behind all other rules, by its source port. Its ct match turns conntrack
// on: without any rule that needs conntrack, the kernel skips the nat chains.
const observer = `table ip observer {
	set in { type inet_service . ipv4_addr . inet_service . mark; flags dynamic; size 4096; }
	set out { type inet_service . ipv4_addr . inet_service . mark; flags dynamic; size 4096; }
	set back { type inet_service . ipv4_addr . inet_service . mark; flags dynamic; size 4096; }
	chain back { type filter hook postrouting priority 2001; oifname "pod0" ct direction reply add @back { udp dport . ip saddr . udp sport . meta mark }; }
	chain mine { type filter hook input priority 2001; ct direction reply add @back { udp dport . ip saddr . udp sport . meta mark }; }
	chain in { type filter hook input priority 2000; ct state new counter; add @in { udp sport . ip daddr . udp dport . meta mark }; }
	chain out { type filter hook postrouting priority 2000; oifname != "lo" add @out { udp sport . ip daddr . udp dport . meta mark }; }
}
`

// seen is the end of each packet, by its source port: "in 10.1.0.1:53 mark 0".
func (w wire) seen(t *testing.T, sets ...string) map[uint16]string {
	found := map[uint16]string{}
	for _, set := range sets {
		var listing struct {
			Nftables []struct {
				Set *struct {
					Elem []struct{ Concat []any }
				}
			}
		}
		require.NoError(t, json.Unmarshal([]byte(w.run(t, w.node, "", "nft", "-j", "list", "set", "ip", "observer", set)), &listing))
		for _, o := range listing.Nftables {
			if o.Set == nil {
				continue
			}
			for _, e := range o.Set.Elem {
				from := uint16(e.Concat[0].(float64))
				found[from] += fmt.Sprintf("%s %v:%v mark %v", set, e.Concat[1], e.Concat[2], e.Concat[3])
			}
		}
	}
	return found
}

// packet is one packet of the test.
type packet struct {
	own      bool
	from, to netip.AddrPort
}

func (w wire) send(t *testing.T, packets []packet) {
	for _, own := range []bool{false, true} {
		in := w.pod
		if own {
			in = w.node
		}
		err := in.Do(t.Context(), func() error {
			for _, p := range packets {
				if p.own != own {
					continue
				}
				conn, err := net.DialUDP("udp4", net.UDPAddrFromAddrPort(p.from), net.UDPAddrFromAddrPort(p.to))
				if err != nil {
					return err
				}
				_, _ = conn.Write([]byte("x")) // a DROP in OUTPUT is an error here
				_ = conn.Close()
			}
			return nil
		})
		require.NoError(t, err)
	}
}

// random makes rules and packets.
type random struct{ *rand.Rand }

func (r random) of(list ...string) string { return list[r.IntN(len(list))] }

func (r random) not() string { return r.of("", "", "", "! ") }

// packets returns n packets with source ports of their own, because conntrack remembers the packets
// of other rule sets.
func (r random) packets(first, n int) (list []packet) {
	for i := range n {
		p := packet{own: r.IntN(4) == 0}
		from := r.of("10.1.0.2", "10.1.0.3")
		to := r.of("10.1.0.1", "192.0.2.1", "192.0.2.9", "10.96.0.1", "10.96.0.2", "10.96.0.10")
		if p.own {
			from, to = r.of("10.1.0.1", "192.0.2.1"), r.of("192.0.2.9", "10.96.0.1", "10.96.0.2", "10.96.0.10")
		}
		p.from = netip.AddrPortFrom(netip.MustParseAddr(from), uint16(10000+(first+i)%50000))
		p.to = netip.AddrPortFrom(netip.MustParseAddr(to), []uint16{53, 80, 8472}[r.IntN(3)])
		list = append(list, p)
	}
	return list
}

// walked formats the ends of a walk as seen does; known is false if the walk does not know the end.
func walked(ways []path.Way) (all map[string]bool, known bool) {
	all, known = map[string]bool{}, true
	for _, w := range ways {
		end := ""
		to := "?"
		if w.Packet.Destination.IsValid() && w.Packet.Destination.IsSingleIP() {
			to = w.Packet.Destination.Addr().String()
		} else if w.Packet.ToNode == path.Yes { // REDIRECT takes the first address of the link, or of lo
			to = map[bool]string{false: "10.1.0.1", true: "127.0.0.1"}[w.Packet.Own]
		}
		known = known && w.Packet.Mark.Unknown == 0
		switch w.End {
		case path.Delivered:
			end = fmt.Sprintf("in %s:%d mark %d", to, w.Packet.Port, w.Packet.Mark.Value)
		case path.Forwarded:
			end = fmt.Sprintf("out %s:%d mark %d", to, w.Packet.Port, w.Packet.Mark.Value)
		case path.Lost:
			known = false
		}
		known = known && w.Sure
		all[end] = true
	}
	return all, known
}

// overNetlink reads the tables as a running node does.
func (w wire) overNetlink(t *testing.T) *ruleset.Set {
	set := &ruleset.Set{}
	require.NoError(t, w.node.Do(t.Context(), func() (err error) {
		set.Foreign, err = nftables.ReadForeign(t.Context())
		return err
	}))
	return set
}

// TestKernel sends random packets through random rules, and compares their ends with the walk's.
func TestKernel(t *testing.T) {
	w := newWire(t)
	r := random{rand.New(rand.NewPCG(*seed, 0))}
	var agreed, unknown, total, replies, unsure int
	for i := range *ruleSets {
		backend := backends()[i%len(backends())]
		text := backend.rules(r)
		w.run(t, w.node, "flush ruleset", "nft", "-f", "-")
		w.run(t, w.node, backend.clean, "sh", "-e")
		first := r.IntN(2) == 0 // the later of two chains of nat with one priority comes first
		if backend.beside && first {
			w.run(t, w.node, r.nft(), "nft", "-f", "-")
		}
		w.run(t, w.node, text, backend.load...)
		if backend.beside && !first {
			w.run(t, w.node, r.nft(), "nft", "-f", "-")
		}
		saved := w.run(t, w.node, "", backend.save...)
		set, err := ruleset.Parse(backend.save[0], strings.NewReader(saved))
		require.NoError(t, err)
		if backend.name == "nftables" && i%2 == 0 { // the other half comes from nft -j
			set = w.overNetlink(t)
		}
		sets := []*ruleset.Set{set}
		if backend.beside {
			sets = append(sets, w.overNetlink(t))
		}
		w.run(t, w.node, observer, "nft", "-f", "-")
		packets := r.packets(i*packetsEach, packetsEach)
		uplink := w.listen(t)
		w.send(t, packets)
		seen := w.seen(t, "in", "out")
		answer(t, uplink)
		backs := w.seen(t, "back")
		rules := path.New(sets, ruleset.IPv4, path.Node{Own: func(a netip.Addr) path.Answer {
			switch a.String() {
			case "10.1.0.1", "192.0.2.1", "127.0.0.1":
				return path.Yes
			}
			return path.No
		}, Route: func(a netip.Addr) string {
			if netip.MustParsePrefix("10.1.0.0/24").Contains(a) {
				return "pod0"
			}
			return "up0"
		}})
		for _, p := range packets {
			total++
			at := path.Packet{Source: path.Addr(p.from.Addr()), Destination: path.Addr(p.to.Addr()), Protocol: "udp", SourcePort: p.from.Port(),
				Port: p.to.Port(), In: "pod0", State: path.StateNew, Own: p.own}
			ways := rules.Walk(at, "", nil)
			ends, known := walked(ways)
			got := seen[p.from.Port()]
			if known && len(ways) == 1 && ends[got] && ways[0].End == path.Forwarded && ways[0].Packet.State == path.StateNew && got != "" &&
				strings.HasPrefix(ways[0].Packet.Destination.String(), "192.0.2.") {
				replies++
				back, sure := repliedTo(rules.Reply(at, &ways[0]))
				switch {
				case !sure:
					unsure++
				case back != backs[p.from.Port()]:
					t.Fatalf("rule set %d, %s: %+v: reply: the kernel: %q, the walk: %q\n%s\n%+v", i, backend.name, p, backs[p.from.Port()], back, saved,
						rules.Reply(at, &ways[0]))
				}
			}
			switch {
			case known && len(ends) == 1 && ends[got]:
				agreed++
			case known && ends[got]: // by chance
				agreed++
			case !known && (ends[got] || len(ends) > 1):
				unknown++
			case !known:
				unknown++
			default:
				t.Errorf("rule set %d, %s: %+v: the kernel: %q, the walk: %v\n%s\n%+v", i, backend.name, p, got, ends, saved, ways)
				for _, f := range set.Foreign {
					for _, c := range f.Chains {
						for _, r := range c.Rules {
							t.Logf("%s %s %s: %s", f.Family, f.Name, c.Name, r.Text)
						}
					}
				}
				if t.Failed() && agreed >= 0 {
					return
				}
			}
		}
	}
	t.Logf("%d packets through %d rule sets: %d agree, %d unknown; %d replies, %d unknown", total, *ruleSets, agreed, unknown, replies, unsure)
	if unknown*20 > total {
		t.Errorf("%d of %d ends unknown, more than 5 %%", unknown, total)
	}
}
