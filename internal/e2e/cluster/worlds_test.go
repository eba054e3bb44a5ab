//go:build cluster

package cluster

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"nodegate/internal/e2e/qemu"
	"nodegate/internal/require"
)

// worlds are changes that other programs make on a node. $1 is the iptables program that they run, $2 the endpoint's address. The finding
// about a lost connection contains says.
var worlds = []struct{ do, undo, says string }{
	{"$1 -A INPUT -p tcp --dport 9999 -j DROP", "$1 -D INPUT -p tcp --dport 9999 -j DROP", ""},
	{"nft 'table inet w { set s { type ipv4_addr; flags interval; elements = { 45.0.0.0/8 }; }; chain c { type filter hook forward priority 0; ip saddr @s drop; }; }'", "", ""},
	{"nft 'table inet w { chain f { type filter hook forward priority mangle; meta mark set meta mark & 0xff00ffff | 0x40000; }; }'", "", ""},
	{"$1 -t mangle -A FORWARD -p tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu", "$1 -t mangle -F FORWARD", ""},
	{"$1 -I FORWARD -m time --datestart 2001-01-01 --datestop 2001-01-02 -j DROP", "$1 -D FORWARD 1", ""},
	{"$1 -t mangle -I PREROUTING -m rpfilter --invert -j DROP", "$1 -t mangle -F PREROUTING", ""},
	{"ip rule add pref 5270 lookup 52", "ip rule del pref 5270", ""},
	{"$1 -P FORWARD DROP", "$1 -P FORWARD ACCEPT", "policy DROP of chain FORWARD"},
	{"$1 -I FORWARD -i cni0 -j DROP", "$1 -D FORWARD 1", "chain FORWARD"},
	{"$1 -t raw -I PREROUTING -i cni0 -j DROP", "$1 -t raw -F PREROUTING", "chain PREROUTING of table raw"},
	{"$1 -t raw -I PREROUTING -i cni0 -p tcp -j NOTRACK", "$1 -t raw -F PREROUTING", "chain PREROUTING of table raw"},
	{"$1 -t raw -I PREROUTING -i cni0 -j CT --zone 5", "$1 -t raw -F PREROUTING", "chain PREROUTING of table raw"},
	{"$1 -t nat -I PREROUTING -i cni0 -j ACCEPT", "$1 -t nat -D PREROUTING 1", "chain PREROUTING of table nat"},
	{"$1 -t nat -I PREROUTING -i cni0 -p tcp -j REDIRECT --to-ports 15001", "$1 -t nat -D PREROUTING 1", "REDIRECT"},
	{"$1 -t mangle -I PREROUTING -i cni0 -j MARK --set-mark 1; ip rule add pref 104 fwmark 1 lookup 104; ip route add blackhole default table 104",
		"$1 -t mangle -F PREROUTING; ip rule del pref 104; ip route flush table 104", "lookup 104"},
	{"$1 -t mangle -I PREROUTING -p tcp -i cni0 -j TPROXY --on-port 15001 --tproxy-mark 1; ip rule add pref 105 fwmark 1 lookup 105; ip route add local default dev lo table 105",
		"$1 -t mangle -F PREROUTING; ip rule del pref 105; ip route flush table 105", "TPROXY"},
	{"$1 -I FORWARD -i cni0 -m bpf --bytecode '1,6 0 0 65535' -j DROP", "$1 -D FORWARD 1", "chain FORWARD"},
	{"$1 -I OUTPUT -o eth0 -d $2 -p tcp -j REJECT", "$1 -D OUTPUT 1", "chain OUTPUT"},
	{"ip rule add pref 99 from 10.244.0.0/16 lookup 99; ip route add blackhole default table 99", "ip rule del pref 99; ip route flush table 99", "lookup 99"},
	{"ip route add unreachable $2", "ip route del unreachable $2", "the route `unreachable 10."},
	{"sysctl -qw net.ipv4.ip_forward=0", "sysctl -qw net.ipv4.ip_forward=1", "ip_forward"},
	{"nft 'table inet w { chain c { type filter hook forward priority 5; ct state new ct count over 0 drop; }; }'", "", "table inet w"},
	{"nft 'table inet w { set s { type ipv4_addr; flags interval; elements = { 10.244.0.0/16 }; }; chain c { type filter hook prerouting priority raw; ip saddr @s drop; }; }'",
		"", "table inet w"},
	{"nft 'table netdev w { chain c { type filter hook ingress device cni0 priority 0; ip protocol tcp drop; }; }'", "", "table netdev w"},
	{"nft 'table bridge w { chain c { type filter hook prerouting priority 0; ip protocol tcp drop; }; }'", "", "table bridge w"},
	{"nft 'table arp w { chain c { type filter hook input priority 0; policy drop; }; }'; ip neigh flush all", "ip neigh flush all", "table arp w"},
}

// TestWorlds makes each change, and then real connections from a Pod and from the node to a Service whose endpoint is on another node. If a
// connection is lost, audit must fail and name the cause; otherwise it must pass.
func TestWorlds(t *testing.T) {
	c, binary := startPlane(t, Newest, ForRules()), buildNodegate(t)
	for _, b := range Backends() {
		t.Run(string(b), func(t *testing.T) {
			t.Parallel()
			n := addNode(t, c, b)
			pod, endpoint, to := connectPod(t, c, n)
			dial := fmt.Sprintf("timeout 2 bash -c 'exec 3<>/dev/tcp/%s/%d'", to, servicePort)
			waitUntil(t, "an answer of the Service", func() (bool, error) { return pod.Shell(t.Context(), dial) == nil, nil })
			untilAudit(t, n, binary, "before all", "pass")
			program := strings.Replace(string(b), string(NFTables), string(IptablesNFT), 1)
			lost := 0
			for _, w := range worlds {
				require.NoError(t, n.Shell(t.Context(), w.do, program, endpoint))
				isLost := pod.Shell(t.Context(), dial) != nil || n.Shell(t.Context(), dial) != nil
				a, err := n.Audit(t.Context(), binary, "--once")
				for again := 0; again < 3 && err == nil && a.Verdict == "unknown"; again++ { // a busy API server
					a, err = n.Audit(t.Context(), binary, "--once")
				}
				require.NoError(t, err)
				switch {
				case isLost && (a.Verdict != "fail" || w.says == "" || !strings.Contains(a.Said(), w.says)):
					t.Errorf("%s loses a connection, want a failure with %q, got %s", w.do, w.says, a.Said())
				case !isLost && (a.Verdict != "pass" || len(a.Findings()) > 0):
					t.Errorf("%s loses no connection, got %s", w.do, a.Said())
				case isLost:
					lost++
				}
				undo := w.undo + "\nfor f in inet netdev bridge arp; do nft add table $f w; nft delete table $f w; done"
				require.NoError(t, n.Shell(t.Context(), undo, program, endpoint))
			}
			require.True(t, lost >= 17, "only %d of %d worlds lose a connection: this tests too little", lost, len(worlds))
			untilAudit(t, n, binary, "after all", "pass")
		})
	}
}

// connectPod gives a node a Pod behind a bridge, and a Service with an endpoint on another node.
func connectPod(t *testing.T, c *ControlPlane, n *ProxyNode) (pod *Space, endpoint, service string) {
	t.Helper()
	far, endpoint, err := c.addSpace(t.Context())
	require.NoError(t, err)
	pod, err = NewSpace()
	require.NoError(t, err)
	t.Cleanup(func() { far.Close(); pod.Close() })
	s, err := c.AddService(t.Context(), "on-"+strings.ToLower(string(n.Backend)), "TCP")
	require.NoError(t, err)
	s.Ready = []string{endpoint}
	require.NoError(t, s.Update(t.Context()))

	bridge := "ip link add cni0 type bridge; ip address add 10.244.1.1/24 dev cni0; ip link set cni0 up"
	require.NoError(t, n.Shell(t.Context(), bridge))
	require.NoError(t, n.Connect(pod, "pod", "cni0"))
	require.NoError(t, pod.Shell(t.Context(), "ip address add 10.244.1.2/24 dev eth0; ip link set eth0 up; ip route add default via 10.244.1.1"))
	require.NoError(t, far.Shell(t.Context(), `ip route add 10.244.1.0/24 via "$1"`, n.Address))
	listen := make(chan error, 1)
	go qemu.OnSpareThread(func() {
		err := far.Enter()
		if err == nil {
			var l net.Listener
			if l, err = net.Listen("tcp4", fmt.Sprintf("%s:%d", endpoint, endpointPort)); err == nil {
				t.Cleanup(func() { _ = l.Close() })
			}
		}
		listen <- err
	})
	require.NoError(t, <-listen)
	return pod, endpoint, s.ClusterIP
}
