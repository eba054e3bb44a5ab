package replica_test

import (
	"bytes"
	"context"
	"encoding/gob"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/host/netns"
	"nodegate/internal/host/replica"
	"nodegate/internal/require"
)

// node returns a namespace that a script has set up. In the script $other is the file of another namespace.
func node(t *testing.T, script string) (*netns.Namespace, context.Context) {
	t.Helper()
	hosttest.NeedRoot(t)
	for _, program := range []string{"ip", "nft", "ipset", "iptables-nft-restore", "iptables-legacy-restore", "ip6tables-legacy-restore"} {
		hosttest.NeedProgram(t, program)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) // a busy machine
	t.Cleanup(cancel)
	n, err := netns.New(ctx)
	require.NoError(t, err)
	t.Cleanup(n.Close)
	other, err := netns.New(ctx)
	require.NoError(t, err)
	t.Cleanup(other.Close)
	run(t, n, fmt.Sprintf("other=/proc/%d/fd/%d\n", os.Getpid(), other.FD())+script)
	return n, ctx
}

// run runs a script in a namespace. Its lock of xtables is its own.
func run(t *testing.T, n *netns.Namespace, script string) string {
	t.Helper()
	lock := t.TempDir() + "/lock"
	var out []byte
	err := n.Do(context.Background(), func() (err error) {
		cmd := exec.Command("bash", "-ec", script)
		cmd.Env = append(os.Environ(), "XTABLES_LOCKFILE="+lock)
		out, err = cmd.CombinedOutput()
		return err
	})
	require.True(t, err == nil, "%s\n%v: %s", script, err, out)
	return string(out)
}

// copyOf returns a replica of a namespace, with the chains of some Services.
func copyOf(t *testing.T, ctx context.Context, n *netns.Namespace, spec replica.Spec, sample ...string) *replica.Replica {
	t.Helper()
	c, err := replica.ReadIn(ctx, n, func([]string) map[string]bool {
		keep := map[string]bool{}
		for _, key := range sample {
			keep[key] = true
		}
		return keep
	})
	require.NoError(t, err)
	r, err := replica.Build(ctx, c, &spec)
	require.NoError(t, err)
	t.Cleanup(r.Close)
	return r
}

const links = `
echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad
ip link add eth0 type veth peer name e1 netns $other; ip addr add 192.168.50.1/24 dev eth0; ip -6 addr add fd00:50::1/64 dev eth0 nodad
ip link set eth0 up mtu 1450
ip link add cni0 type bridge; ip addr add 10.244.0.1/24 dev cni0; ip link set cni0 up
ip link add veth1 type veth peer name p1 netns $other; ip link set veth1 master cni0 up
for l in e1 p1; do nsenter --net=$other ip link set $l up; done; for i in $(seq 1000); do ip link show up | grep 'cni0:\|eth0@\|veth1@' | grep -vq 'state UP' || break; sleep 0.01; done
`

// TestCopies: the listings of the copy are those of the node.
func TestCopies(t *testing.T) {
	for _, c := range []struct{ name, script, list string }{
		{"addresses and links", links, `ip -br addr show scope global | sed 's/@[^ ]*//' | awk '{$2=""; print}' | sort; ip -br link show type bridge | awk '{print $1}'
cat /sys/class/net/eth0/mtu 2>/dev/null || true; ip -o link show dev eth0 | grep -o 'mtu [0-9]*'`},
		{"routes", links + `ip route add default via 192.168.50.254; ip route add 10.244.1.0/24 via 192.168.50.2 metric 7; ip route add blackhole 10.9.0.0/16
ip route add unreachable default table 52; ip route add default via 192.168.50.7 dev eth0 table 100 onlink
ip route add 10.8.0.0/16 nexthop via 192.168.50.3 weight 2 nexthop via 192.168.50.4; ip -6 route add default via fd00:50::fe
ip route del 10.244.0.0/24 dev cni0 proto kernel; ip -6 route add prohibit fd00:9::/48`,
			`ip route show table all | grep -v 'table local' | sort; ip -6 route show table all | grep -v 'table local\|^multicast\|^fe80' | sort`},
		{"routing rules", `ip rule add pref 100 from 10.244.0.0/16 iif lo lookup 99; ip rule add pref 101 not fwmark 0x4000/0x4000 lookup 98
ip rule add pref 102 to 1.2.3.4 prohibit; ip rule add pref 30999 lookup main suppress_prefixlength 0; ip -6 rule add pref 103 fwmark 7 lookup 100
ip rule del pref 32767; ip rule del pref 0; ip rule add pref 5 lookup local`, `ip rule; ip -6 rule`},
		{"sysctls", links + `echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv4/conf/all/route_localnet
echo 2 >/proc/sys/net/ipv4/conf/eth0/rp_filter; echo 1 >/proc/sys/net/ipv4/conf/cni0/proxy_arp; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding
echo 0 >/proc/sys/net/ipv4/conf/veth1/forwarding`,
			`cd /proc/sys/net; cat ipv4/ip_forward ipv6/conf/all/forwarding; cat ipv4/conf/{all,eth0,cni0}/{rp_filter,proxy_arp,route_localnet,forwarding}`},
		{"nftables", links + nftRules, "nft list ruleset"},
		{"iptables-nft", iptablesRules("iptables-nft-restore"), "iptables-nft-save | grep -v ^#; nft list ruleset"},
		{"legacy", iptablesRules("iptables-legacy-restore") + iptablesRules("ip6tables-legacy-restore"),
			"iptables-legacy-save | grep -v ^#; ip6tables-legacy-save | grep -v ^#"},
		{"ip sets", `ipset create gone hash:ip; ipset create nets hash:net counters; ipset add nets 10.0.0.0/8; ipset add nets 1.2.3.0/24 nomatch
ipset create six hash:ip family inet6; ipset add six fd00::1; ipset create ports hash:ip,port; ipset add ports 10.0.0.1,tcp:80; ipset destroy gone
for i in $(seq 3000); do echo add nets 45.$((i/250)).$((i%250)).0/24; done | ipset restore
iptables-nft -A FORWARD -m set --match-set nets src -j DROP; iptables-legacy -A INPUT -m set --match-set ports dst,dst -j DROP`,
			"ipset save | sort; iptables-nft-save | grep ^-A; iptables-legacy-save | grep ^-A"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, ctx := node(t, c.script)
			r := copyOf(t, ctx, n, replica.Spec{})
			assert.Diff(t, run(t, r.Node, c.list), run(t, n, c.list))
			assert.Equal(t, strings.Join(r.Refused, "\n"), "")
		})
	}
}

const nftRules = `nft -f - <<'X'
table inet fw {
	comment "a firewall"
	counter seen { packets 5 bytes 300; }
	set block { type ipv4_addr; flags interval; elements = { 10.0.0.0/8, 172.16.0.0-172.17.0.9 }; }
	set pair { type ipv4_addr . inet_service; elements = { 1.2.3.4 . 80 }; }
	chain other { iif "eth0" accept; iifname "eth0" meta mark set meta mark & 0xff0000 ^ 0x1; }
	chain web { ip saddr { 1.1.1.1, 2.2.2.2 } limit rate 5/second counter name "seen" accept; ct state vmap { new : goto other, established : accept }; }
	map ports { type inet_service : verdict; elements = { 22 : accept, 80 : jump web }; }
	chain in { type filter hook input priority filter - 5; policy drop; tcp dport vmap @ports; ip saddr @block drop; log prefix "x" reject with icmpx admin-prohibited; }
	chain dev { type filter hook ingress device "eth0" priority 0; ip saddr . tcp dport @pair drop; }
}
table ip n { chain post { type nat hook postrouting priority srcnat; oifname "eth0" counter masquerade; snat to ip saddr map { 10.1.0.1 : 10.2.0.1 }; }; }
X
`

// iptablesRules returns a script that loads kube-proxy's rules for three Services, and another program's.
func iptablesRules(restore string) string {
	return restore + ` <<'X'
*filter
:FORWARD DROP [0:0]
:MINE - [0:0]
:OTHER - [0:0]
:KUBE-SERVICES - [0:0]
-A FORWARD -p tcp -m tcp --dport 80 -m comment --comment "a b" -j MINE
-A FORWARD -m conntrack --ctstate NEW -j KUBE-SERVICES
-A MINE -m mark --mark 0x4000/0x4000 -g OTHER
-A MINE -j REJECT
-A OTHER -m statistic --mode random --probability 0.25 -j RETURN
-A OTHER -p udp -m multiport --dports 53,54 -j LOG --log-prefix x
COMMIT
*mangle
:POSTROUTING ACCEPT [0:0]
-A POSTROUTING -p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu
COMMIT
X
`
}

const kubeProxy = `*nat
:KUBE-SERVICES - [0:0]
:KUBE-SVC-AAAAAAAAAAAAAAAA - [0:0]
:KUBE-SEP-AAAAAAAAAAAAAAA2 - [0:0]
:KUBE-SVC-BBBBBBBBBBBBBBBB - [0:0]
:KUBE-SEP-BBBBBBBBBBBBBBB2 - [0:0]
:KUBE-SVC-CCCCCCCCCCCCCCCC - [0:0]
:KUBE-SEP-CCCCCCCCCCCCCCC2 - [0:0]
:MINE - [0:0]
-A PREROUTING -j MINE
-A PREROUTING -j KUBE-SERVICES
-A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -m tcp --dport 80 -j KUBE-SVC-AAAAAAAAAAAAAAAA
-A KUBE-SERVICES -d 10.96.0.2/32 -p tcp -m tcp --dport 80 -j KUBE-SVC-BBBBBBBBBBBBBBBB
-A KUBE-SERVICES -d 10.9.9.9/32 -j ACCEPT
-A KUBE-SERVICES -d 10.96.0.3/32 -p tcp -m tcp --dport 80 -j KUBE-SVC-CCCCCCCCCCCCCCCC
-A KUBE-SVC-AAAAAAAAAAAAAAAA -j KUBE-SEP-AAAAAAAAAAAAAAA2
-A KUBE-SEP-AAAAAAAAAAAAAAA2 -p tcp -m tcp -j DNAT --to-destination 10.244.0.1:80
-A KUBE-SVC-BBBBBBBBBBBBBBBB -j KUBE-SEP-BBBBBBBBBBBBBBB2
-A KUBE-SEP-BBBBBBBBBBBBBBB2 -p tcp -m tcp -j DNAT --to-destination 10.244.0.2:80
-A KUBE-SVC-CCCCCCCCCCCCCCCC -j KUBE-SEP-CCCCCCCCCCCCCCC2
-A KUBE-SEP-CCCCCCCCCCCCCCC2 -p tcp -m tcp -j DNAT --to-destination 10.244.0.3:80
-A MINE -d 1.2.3.4/32 -j KUBE-SVC-CCCCCCCCCCCCCCCC
COMMIT
`

// TestPruned: of kube-proxy's chains the copy has those of the sample, and those to which another program's rule leads.
func TestPruned(t *testing.T) {
	for _, backend := range []string{"nft", "legacy"} {
		t.Run(backend, func(t *testing.T) {
			n, ctx := node(t, "iptables-"+backend+"-restore <<X\n"+kubeProxy+"X\n")
			r := copyOf(t, ctx, n, replica.Spec{}, "AAAAAAAAAAAAAAAA")
			save := "iptables-" + backend + "-save | grep -v '^#'"
			want := regexp.MustCompile(`(?m)^.*(KUBE-SVC-B|KUBE-SEP-B).*\n`).ReplaceAllString(run(t, n, save), "")
			assert.Diff(t, run(t, r.Node, save), want)
		})
	}
}

// TestPrunedMaps: in nftables mode verdict maps lead to the chains of Services.
func TestPrunedMaps(t *testing.T) {
	script := "table ip kube-proxy {\n"
	elements := ""
	for i, key := range []string{"AAAAAAAA", "BBBBBBBB", "CCCCCCCC"} {
		script += fmt.Sprintf(`set affinity-%[1]s-x { type ipv4_addr; flags dynamic,timeout; timeout 3h; }
chain endpoint-%[1]s-x { update @affinity-%[1]s-x { ip saddr }; meta l4proto tcp dnat to 10.244.0.%[2]d:80; }
chain service-%[1]s-x { ip saddr @affinity-%[1]s-x goto endpoint-%[1]s-x; numgen random mod 1 vmap { 0 : goto endpoint-%[1]s-x }; }
`, key, i)
		elements += fmt.Sprintf("10.96.0.%d . tcp . 80 : goto service-%s-x,", i, key)
	}
	script += "map service-ips { type ipv4_addr . inet_proto . inet_service : verdict; elements = { " + elements + ` } }
chain services { ip daddr . meta l4proto . th dport vmap @service-ips; }
chain mine { ip saddr 1.2.3.4 goto service-CCCCCCCC-x; }
chain nat-prerouting { type nat hook prerouting priority dstnat; jump services; }
}`
	n, ctx := node(t, "nft -f - <<'X'\n"+script+"\nX\n")
	r := copyOf(t, ctx, n, replica.Spec{}, "AAAAAAAA")
	got := run(t, r.Node, "nft list ruleset")
	assert.Equal(t, strings.Join(r.Refused, "\n"), "")
	for text, times := range map[string]int{"AAAAAAAA": 8, "BBBBBBBB": 0, "CCCCCCCC": 9, "dnat to": 2, "vmap": 3} {
		assert.Equal(t, strings.Count(got, text), times, text)
	}
}

// TestWithout: a part that is left out is missing, and everything else is as it was.
func TestWithout(t *testing.T) {
	n, ctx := node(t, links+"iptables-nft -P FORWARD DROP; iptables-nft -A FORWARD -s 1.2.3.4 -j DROP; iptables-nft -A FORWARD -s 1.2.3.5 -j DROP\n"+
		"iptables-legacy -P INPUT DROP; iptables-legacy -N X; iptables-legacy -A INPUT -s 1.2.3.4 -j X; iptables-legacy -A X -s 1.2.3.5 -j DROP\n"+
		"ip rule add pref 100 lookup 7; ip route add blackhole default table 7")
	r := copyOf(t, ctx, n, replica.Spec{})
	list := "iptables-nft-save | grep '^-A\\|^:FO'; iptables-legacy-save | grep '^-A\\|^:I'; ip rule; ip route show table 7"
	whole := run(t, r.Node, list)
	for what, line := range map[string]string{
		"nft family 2 table filter chain FORWARD rule 1 ": "-A FORWARD -s 1.2.3.4/32 -j DROP",
		"legacy family 2 table filter chain INPUT rule 1": "-A INPUT -s 1.2.3.4/32 -j X",
		"legacy family 2 table filter chain X rule 1":     "-A X -s 1.2.3.5/32 -j DROP",
		"routing rule 100, table 7":                       "100:\tfrom all lookup 7",
		"route to default, table 7":                       "blackhole default",
		"nft family 2 table filter: policy":               ":FORWARD DROP [0:0]",
		"legacy family 2 table filter: policy":            ":INPUT DROP [0:0]",
	} {
		at := slices.IndexFunc(r.Capture.Parts, func(p replica.Part) bool { return strings.HasPrefix(p.String(), what) })
		require.True(t, at >= 0, "no part %q in %v", what, r.Capture.Parts)
		require.NoError(t, r.Load(ctx, map[int]bool{at: true}))
		instead := ""
		if strings.HasPrefix(line, ":") {
			instead = strings.Replace(line, "DROP", "ACCEPT", 1) + "\n"
		}
		trim := func(s string) string { return regexp.MustCompile(`(?m) +$`).ReplaceAllString(s, "") }
		assert.Diff(t, trim(run(t, r.Node, list)), strings.Replace(trim(whole), line+"\n", instead, 1), what)
		require.NoError(t, r.Load(ctx, nil))
		assert.Diff(t, run(t, r.Node, list), whole, what)
	}
}

// TestPackets: Pods, the outside and the node reach each other through the copy, and each answer names who asked.
func TestPackets(t *testing.T) {
	n, ctx := node(t, links+`ip route add default via 192.168.50.254; ip -6 route add default via fd00:50::fe; ip -6 addr add fd00:244::1/64 dev cni0 nodad
echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding
nft 'table ip n { chain p { type nat hook prerouting priority -100; ip daddr 10.96.0.1 tcp dport 80 dnat to 10.244.1.4:8080; }; chain q { type nat hook postrouting priority 100; ip daddr 203.0.113.7 masquerade; }; }'`)
	pod, six := netip.MustParseAddr("10.244.0.4"), netip.MustParseAddr("fd00:244::4")
	r := copyOf(t, ctx, n, replica.Spec{Pods: []replica.Pod{{Addresses: []netip.Addr{pod, six}}},
		Ports: []replica.Port{{Protocol: unix.IPPROTO_TCP, Number: 8080}, {Protocol: unix.IPPROTO_UDP, Number: 53}}})
	out, ok := r.Behind(netip.MustParseAddr("203.0.113.7"))
	assert.Equal(t, ok, true)
	for _, c := range []struct {
		name string
		call replica.Call
		end  int
		at   string
		from string
	}{
		{"Pod to a Service", replica.Call{To: netip.MustParseAddrPort("10.96.0.1:80"), Protocol: 6}, out, "10.244.1.4:8080", "10.244.0.4"},
		{"Pod to the outside", replica.Call{To: netip.MustParseAddrPort("203.0.113.7:8080"), Protocol: 6, Big: true}, out, "203.0.113.7:8080", "192.168.50.1"},
		{"by UDP", replica.Call{To: netip.MustParseAddrPort("10.244.1.4:53"), Protocol: 17}, out, "10.244.1.4:53", "10.244.0.4"},
		{"by IPv6", replica.Call{To: netip.MustParseAddrPort("[fd00:203::7]:53"), Protocol: 17}, out, "[fd00:203::7]:53", "fd00:244::4"},
		{"by IPv6 TCP", replica.Call{To: netip.MustParseAddrPort("[fd00:203::7]:8080"), Protocol: 6}, out, "[fd00:203::7]:8080", "fd00:244::4"},
		{"node to a Pod", replica.Call{End: -1, To: netip.MustParseAddrPort("10.244.0.4:8080"), Protocol: 6}, 0, "10.244.0.4:8080", "10.244.0.1"},
		{"node to a Pod by IPv6", replica.Call{End: -1, To: netip.MustParseAddrPort("[fd00:244::4]:8080"), Protocol: 6}, 0, "[fd00:244::4]:8080", "fd00:244::1"},
		{"outside to a Pod", replica.Call{End: out, From: netip.MustParseAddr("203.0.113.9"), To: netip.MustParseAddrPort("10.244.0.4:8080"), Protocol: 6}, 0, "10.244.0.4:8080", "203.0.113.9"},
	} {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		answer, err := r.Send(ctx, c.call)
		cancel()
		assert.True(t, err == nil && answer.End == c.end && answer.At.String() == c.at && answer.From.Addr().String() == c.from,
			"%s: %+v %v", c.name, answer, err)
	}
}

func TestHasForeign(t *testing.T) {
	const own = `echo 1 >/proc/sys/net/ipv4/ip_forward
ip link add eth0 type veth peer name e1 netns $other; ip addr add 192.0.2.10/24 dev eth0; ip link set eth0 up; ip route add default via 192.0.2.1
nft 'table ip kube-proxy { chain c { type filter hook forward priority 0; policy accept; counter; }; }'
printf '*filter\n:KUBE-FORWARD - [0:0]\n-A FORWARD -j KUBE-FORWARD\n-A KUBE-FORWARD -j ACCEPT\nCOMMIT\n' | iptables-nft-restore
`
	for more, want := range map[string]bool{
		"": false,
		"nft 'table inet x { chain c { counter; }; }'":            true,
		"iptables-nft -P FORWARD DROP":                            true,
		"iptables-nft -t nat -N FLANNEL-POSTRTG":                  true, // emptied
		"ip rule add lookup 52":                                   true,
		"echo 0 >/proc/sys/net/ipv4/ip_forward":                   true,
		"ip route add blackhole 10.244.0.0/16":                    true,
		"ip route add 10.244.1.0/24 via 192.0.2.1":                false,
		"ip route add 10.244.1.0/24 via 192.0.2.1 table 2":        true,
		"ipset create x hash:ip":                                  true,
		"ip link add tun0 type veth; ip link set tun0 arp off up": true,
	} {
		n, ctx := node(t, own+more)
		c, err := replica.ReadIn(ctx, n, func([]string) map[string]bool { return nil })
		require.NoError(t, err)
		if got := c.HasForeign(); got != want {
			t.Errorf("%q: %v", more, got)
		}
	}
}

// TestLeavesNoTrace: during replicas, some of which are killed, the node's namespace has no event and no object.
func TestLeavesNoTrace(t *testing.T) {
	if os.Getenv("REPLICA_CHILD") != "" {
		c, err := replica.Read(t.Context(), func([]string) map[string]bool { return nil })
		require.NoError(t, err)
		r, err := replica.Build(t.Context(), c, &replica.Spec{Pods: []replica.Pod{{Addresses: []netip.Addr{netip.MustParseAddr("10.244.0.4")}}}})
		require.NoError(t, err)
		fmt.Println(len(r.Ends), "ends")
		if os.Getenv("REPLICA_CHILD") == "killed" {
			require.NoError(t, unix.Kill(os.Getpid(), unix.SIGKILL))
		}
		r.Close()
		return
	}
	n, _ := node(t, links+"iptables-nft -A FORWARD -j DROP; iptables-legacy -A FORWARD -j DROP")
	// The kernel itself may send a packet, which the policies count.
	state := "ip -o link; ip -o addr; ip route show table all; ip rule; nft list ruleset; iptables-legacy-save -c | sed '/^#/d; /^:/s/ .[0-9:]*]$//'; cat /proc/modules | cut -d' ' -f1 | sort"
	run(t, n, "while ip addr | grep -q tentative; do sleep 0.01; done; sleep 0.2")
	before := run(t, n, state)
	self, err := os.Executable()
	require.NoError(t, err)
	out := run(t, n, fmt.Sprintf(`exec 2>&1; d=$(mktemp -d); (exec ip monitor all >$d/ip) & a=$!; (exec nft monitor >$d/nft) & b=$!; sleep 0.5
for i in 1 2 3 4; do REPLICA_CHILD=killed %[1]s -test.run 'TestLeavesNoTrace$' || true; REPLICA_CHILD=ended %[1]s -test.run 'TestLeavesNoTrace$'; done
kill $a $b; cat $d/ip $d/nft | sed 's/^/event: /'; rm -r $d`, self))
	assert.Equal(t, strings.Count(out, "2 ends"), 8, out)
	assert.True(t, !strings.Contains(out, "event: "), "%v", out)
	assert.Diff(t, run(t, n, state), before)
}

// TestInUserNamespace: a process that has rights only in a user namespace of its own builds the replica from what another one captured.
func TestInUserNamespace(t *testing.T) {
	if os.Getenv("REPLICA_CHILD") == "user" {
		var c replica.Capture
		require.NoError(t, gob.NewDecoder(os.Stdin).Decode(&c))
		r, err := replica.Build(t.Context(), &c, &replica.Spec{})
		require.NoError(t, err)
		fmt.Println("refused:", r.Refused)
		fmt.Println(run(t, r.Node, "nft list set ip long s | grep -o '/25' | wc -l"))
		r.Close()
		return
	}
	n, ctx := node(t, links+nftRules+"iptables-nft -A FORWARD -m conntrack --ctstate NEW -j REJECT; iptables-legacy -A FORWARD -j DROP\n"+
		"ipset create s hash:ip; ipset add s 1.2.3.4; iptables-nft -A FORWARD -m set --match-set s src -j DROP; ip rule add pref 7 lookup 9; echo 1 >/proc/sys/net/ipv4/ip_forward\n"+
		"(echo 'table ip long { set s { type ipv4_addr; flags interval; elements = {'; for i in $(seq 20000); do echo 45.$((i/200)).$((i%200)).0/25,; done; echo '46.0.0.0/8 }; }; }') | nft -f -")
	c, err := replica.ReadIn(ctx, n, func([]string) map[string]bool { return nil })
	require.NoError(t, err)
	var b bytes.Buffer
	require.NoError(t, gob.NewEncoder(&b).Encode(c))
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, "-test.run", "TestInUserNamespace$")
	cmd.Env, cmd.Stdin = append(os.Environ(), "REPLICA_CHILD=user"), &b
	one := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER, UidMappings: one, GidMappings: one}
	out, err := cmd.CombinedOutput()
	assert.True(t, err == nil && strings.Contains(string(out), "refused: []\n20000\n"), "%v: %s", err, out)
}
