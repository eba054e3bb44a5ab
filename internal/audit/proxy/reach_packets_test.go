package proxy

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"nodegate/internal/audit/path"
	"nodegate/internal/host/hosttest"
	scratch "nodegate/internal/host/netns"
	"nodegate/internal/host/nftables"
	"nodegate/internal/require"
	"nodegate/internal/ruleset"
)

// TestReachPackets sends packets of a Pod to a Service and to another machine through the rules of a node
// with flannel, and compares what arrives with the findings: none if everything arrives.
func TestReachPackets(t *testing.T) {
	hosttest.NeedRoot(t)
	for _, program := range []string{"ip", "nft", "iptables-nft-restore"} {
		hosttest.NeedProgram(t, program)
	}
	spaces := map[string]*scratch.Namespace{}
	files := map[string]string{}
	for _, name := range []string{"node", "client", "server", "peer"} {
		n, err := scratch.New(t.Context())
		require.NoError(t, err)
		t.Cleanup(n.Close)
		spaces[name] = n
		_ = n.Do(t.Context(), func() error { // never fails
			files[name] = fmt.Sprintf("/proc/%d/task/%d/ns/net", unix.Getpid(), unix.Gettid())
			return nil
		})
	}
	run := func(in, script, stdin string) string {
		t.Helper()
		var out []byte
		err := spaces[in].Do(t.Context(), func() (err error) {
			cmd := exec.Command("sh", "-ec", script)
			cmd.Stdin = strings.NewReader(stdin)
			out, err = cmd.CombinedOutput()
			return err
		})
		if err != nil {
			t.Fatalf("%s: %v: %s", script, err, out)
		}
		return string(out)
	}
	run("node", "ip link set lo up; echo 1 > /proc/sys/net/ipv4/ip_forward; ip link add cni0 type bridge; ip link set cni0 up; "+
		"ip address add 10.244.0.1/25 dev cni0; ip address add 10.244.0.129/25 dev cni0; ip link add eth1 type bridge", "")
	for name, l := range map[string]struct{ link, node, own string }{
		"client": {"veth1", "10.244.0.1/25", "10.244.0.9/25"}, "server": {"veth2", "10.244.0.129/25", "10.244.0.130/25"},
		"peer": {"eth0", "192.168.157.133/24", "192.168.157.134/24"},
	} {
		join := "ip address add " + l.node + " dev " + l.link
		if name != "peer" {
			join = "ip link set " + l.link + " master cni0"
		}
		run("node", fmt.Sprintf("ip link add %s type veth peer name up0 netns %s; %s; ip link set %[1]s up", l.link, files[name], join), "")
		gateway, _, _ := strings.Cut(l.node, "/")
		run(name, fmt.Sprintf("ip link set lo up; ip address add %s dev up0; ip link set up0 up; ip route add default via %s", l.own, gateway), "")
	}
	run("node", "ip route add default via 192.168.157.134", "")
	for in, address := range map[string]string{"server": "10.244.0.130:53", "peer": "192.168.157.134:8080"} {
		err := spaces[in].Do(t.Context(), func() error {
			l, err := net.Listen("tcp4", address)
			if err == nil {
				t.Cleanup(func() { _ = l.Close() })
				go func() {
					for c, err := l.Accept(); err == nil; c, err = l.Accept() {
						_ = c.Close()
					}
				}()
			}
			return err
		})
		require.NoError(t, err)
	}
	arrives := func(from, to string) (ok bool) {
		_ = spaces[from].Do(t.Context(), func() error {
			socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
			if err != nil {
				return err
			}
			defer func() { _ = unix.Close(socket) }()
			at := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(to))
			if err := unix.Connect(socket, &unix.SockaddrInet4{Port: at.Port, Addr: [4]byte(at.IP.To4())}); err != nil && !errors.Is(err, unix.EINPROGRESS) {
				return err // OUTPUT has dropped it
			}
			wait := []unix.PollFd{{Fd: int32(socket), Events: unix.POLLOUT}}
			n, _ := unix.Poll(wait, 700)
			failed, _ := unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_ERROR)
			ok = n == 1 && failed == 0
			return nil
		})
		return ok
	}
	routes := []path.Route{{To: netip.MustParsePrefix("10.244.0.0/25"), Link: "cni0"}, {To: netip.MustParsePrefix("10.244.0.128/25"), Link: "cni0"},
		{To: netip.MustParsePrefix("192.168.157.0/24"), Link: "eth0"}}
	save := strings.NewReplacer("10.244.0.4:", "10.244.0.130:", "10.244.0.5:", "10.244.0.130:").Replace(readFile(t, "flannel-docker.txt"))
	for _, c := range []struct{ what, change, lost string }{
		{"healthy", "true", ""},
		{"a policy under flannel's ACCEPT", "iptables-nft -P FORWARD DROP", ""},
		{"a policy without flannel's ACCEPT", "iptables-nft -P FORWARD DROP; iptables-nft -F FLANNEL-FWD", "service peer"},
		{"a policy of mangle", "iptables-nft -t mangle -P FORWARD DROP", "service peer"},
		{"replies", "iptables-nft -I FORWARD -i eth0 -j DROP", "peer"},
		{"replies by a link that has no route", "iptables-nft -I FORWARD -i eth1 -j DROP", ""},
		{"the uplink", "iptables-nft -I FORWARD -o eth0 -j DROP", "peer"},
		{"the uplink, for Pods", "iptables-nft -t mangle -I POSTROUTING -s 10.244.0.0/16 -o eth0 -j DROP", "peer"},
		{"the uplink, in nft", "nft 'table inet mine { chain c { type filter hook forward priority 5; oif eth0 ct state new drop; }; }'", "peer"},
		{"every link but the uplink", "iptables-nft -I FORWARD ! -o eth0 -j DROP", "service peer"},
		{"a card for management", "iptables-nft -I FORWARD -o eth1 -j DROP; iptables-nft -I OUTPUT -o eth1 -j DROP", ""},
		{"links that do not exist", "iptables-nft -I FORWARD -o docker0 -j DROP; iptables-nft -I FORWARD ! -o eth0 -i docker0 -j DROP", ""},
		{"masquerading by the uplink", "iptables-nft -t nat -I POSTROUTING -o eth0 -j MASQUERADE", ""},
		{"all links but two", "nft 'table inet mine { chain c { type filter hook forward priority 5; oifname != { eth0, cni0 } drop; }; }'", ""},
		{"Pods of this node to each other", "iptables-nft -I FORWARD -i cni0 -o cni0 -j DROP", "service"},
		{"replies between Pods of this node", "iptables-nft -I FORWARD -i cni0 -o cni0 -m conntrack --ctstate ESTABLISHED -j DROP", "service"},
		{"replies of Pods to the node", "iptables-nft -I INPUT -s 10.244.0.0/16 -m conntrack --ctstate ESTABLISHED -j DROP", "node"},
		{"Pods of this node to each other, accepted", "iptables-nft -I FORWARD -i cni0 -o cni0 -j ACCEPT", ""},
		{"Pods of this node to each other, INVALID", "iptables-nft -I FORWARD -i cni0 -o cni0 -m conntrack --ctstate INVALID -j DROP", ""},
		{"a node's Pods", "iptables-nft -I FORWARD -d 10.244.0.128/25 -j DROP", "service"},
		{"Pods of a node without endpoints", "iptables-nft -I FORWARD -d 10.244.7.0/24 -j DROP; iptables-nft -I FORWARD -d 10.244.0.136/29 -j DROP", ""},
		{"the node to Pods", "iptables-nft -I OUTPUT -m conntrack --ctstate NEW -d 10.244.0.0/16 -j DROP", "node"},
		{"the node to a node's Pods", "nft 'table inet mine { chain c { type filter hook output priority 5; ip daddr 10.244.0.128/25 ct state new drop; }; }'", "node"},
		{"the node to addresses of Pods that nat has not translated", "iptables-nft -t mangle -I OUTPUT -m conntrack --ctstate NEW -d 10.244.0.0/16 -p tcp --dport 53 -m conntrack --ctorigdst 10.96.0.10 -j DROP", ""},
		{"the node to another port", "iptables-nft -I OUTPUT -d 10.244.0.0/16 -p tcp --dport 22 -j DROP", ""},
		{"a port of endpoints", "iptables-nft -I FORWARD -p tcp --dport 53 -j DROP", "service"},
		{"one ClusterIP", "iptables-nft -t raw -I PREROUTING -d 10.96.0.10/32 -p tcp --dport 53 -j DROP", "service"},
		{"nft at prerouting", "nft 'table inet mine { chain c { type filter hook prerouting priority -5; meta l4proto tcp ct state new drop; }; }'", "service peer"},
		{"nft at postrouting", "nft 'table inet mine { chain c { type filter hook postrouting priority 5; meta l4proto tcp ct state new drop; }; }'", "service peer node"},
		{"notrack of nft", "nft 'table inet mine { chain c { type filter hook prerouting priority -350; ip daddr 10.96.0.0/12 notrack; }; }'", "service"},
		{"chains of nft in iptables' table", "nft 'add chain ip filter sub; add chain ip filter mine { type filter hook forward priority -5; policy drop; }; " +
			"add rule ip filter mine jump sub; add rule ip filter sub tcp dport 8080 accept'", "service peer"},
		{"a healthy chain of nft in iptables' table", "nft 'add chain ip filter sub; add chain ip filter mine { type filter hook forward priority -5; " +
			"policy drop; }; add rule ip filter mine jump sub; add rule ip filter sub accept'", ""},
		{"notrack of nft in iptables' table", "nft 'add table ip raw; add chain ip raw pre { type filter hook prerouting priority -300; }; " +
			"add rule ip raw pre ip saddr 10.244.0.0/16 notrack'", "service peer node"},
		{"notrack of the replies of endpoints", "iptables-nft -t raw -I PREROUTING -p tcp --sport 53 -j NOTRACK", "service node"},
		{"notrack of another port", "iptables-nft -t raw -I PREROUTING -p tcp --sport 54 -j NOTRACK", ""},
		{"a sleeping table of nft", "nft 'table inet mine { flags dormant; chain c { type filter hook prerouting priority -5; drop; }; }'", ""},
	} {
		run("node", "nft flush ruleset; iptables-nft-restore", save)
		run("node", c.change, "")
		lost := ""
		for _, to := range [][3]string{{"service", "client", "10.96.0.10:53"}, {"peer", "client", "192.168.157.134:8080"}, {"node", "node", "10.96.0.10:53"}} {
			if !arrives(to[1], to[2]) {
				lost = strings.TrimSpace(lost + " " + to[0])
			}
		}
		sets := mustParse(t, run("node", "iptables-nft-save 2>/dev/null", ""))
		require.NoError(t, spaces["node"].Do(t.Context(), func() error {
			tables, err := nftables.ReadForeign(t.Context())
			sets = append(sets, &ruleset.Set{Foreign: tables})
			return err
		}))
		found := ""
		for _, f := range Judge(sets, Options{Links: []string{"cni0", "eth0", "eth1", "veth1", "veth2"}, Uplink: "eth0", Routes: routes}).Findings {
			if strings.HasPrefix(f.Name, "kubeproxy.way.") {
				found += f.Name + " " + f.Message + "\n"
			}
		}
		if lost != c.lost || (found == "") != (lost == "") {
			t.Errorf("%s: lost: %q, want %q; found: %s", c.what, lost, c.lost, found)
		}
	}
}
