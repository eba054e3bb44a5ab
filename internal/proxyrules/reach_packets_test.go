package proxyrules

import (
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/hosttest"
	scratch "nodegate/internal/host/netns"
	"nodegate/internal/host/nftables"
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
		if err != nil {
			t.Fatal(err)
		}
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
	run("node", "ip link set lo up; echo 1 > /proc/sys/net/ipv4/ip_forward", "")
	for name, l := range map[string]struct{ link, node, own string }{
		"client": {"veth1", "10.244.0.1/25", "10.244.0.9/25"}, "server": {"veth2", "10.244.0.129/25", "10.244.0.130/25"},
		"peer": {"eth0", "192.168.157.133/24", "192.168.157.134/24"},
	} {
		run("node", fmt.Sprintf("ip link add %s type veth peer name up0 netns %s; ip address add %s dev %[1]s; ip link set %[1]s up", l.link, files[name], l.node), "")
		gateway, _, _ := strings.Cut(l.node, "/")
		run(name, fmt.Sprintf("ip link set lo up; ip address add %s dev up0; ip link set up0 up; ip route add default via %s", l.own, gateway), "")
	}
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
		if err != nil {
			t.Fatal(err)
		}
	}
	arrives := func(to string) (ok bool) {
		_ = spaces["client"].Do(t.Context(), func() error {
			socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
			if err != nil {
				return err
			}
			defer func() { _ = unix.Close(socket) }()
			at := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(to))
			_ = unix.Connect(socket, &unix.SockaddrInet4{Port: at.Port, Addr: [4]byte(at.IP.To4())})
			wait := []unix.PollFd{{Fd: int32(socket), Events: unix.POLLOUT}}
			n, _ := unix.Poll(wait, 700)
			failed, _ := unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_ERROR)
			ok = n == 1 && failed == 0
			return nil
		})
		return ok
	}
	save := strings.NewReplacer("10.244.0.4:", "10.244.0.130:", "10.244.0.5:", "10.244.0.130:").Replace(readFile(t, "flannel-docker.txt"))
	for _, c := range []struct{ what, change, lost string }{
		{"healthy", "true", ""},
		{"a policy under flannel's ACCEPT", "iptables-nft -P FORWARD DROP", ""},
		{"a policy without flannel's ACCEPT", "iptables-nft -P FORWARD DROP; iptables-nft -F FLANNEL-FWD", "service peer"},
		{"a policy of mangle", "iptables-nft -t mangle -P FORWARD DROP", "service peer"},
		{"replies", "iptables-nft -I FORWARD -i eth0 -j DROP", "peer"},
		{"replies by a link that has no route", "ip link add eth1 type bridge; iptables-nft -I FORWARD -i eth1 -j DROP", ""},
		{"a port of endpoints", "iptables-nft -I FORWARD -p tcp --dport 53 -j DROP", "service"},
		{"one ClusterIP", "iptables-nft -t raw -I PREROUTING -d 10.96.0.10/32 -p tcp --dport 53 -j DROP", "service"},
		{"nft at prerouting", "nft 'table inet mine { chain c { type filter hook prerouting priority -5; meta l4proto tcp ct state new drop; }; }'", "service peer"},
		{"nft at postrouting", "nft 'table inet mine { chain c { type filter hook postrouting priority 5; meta l4proto tcp ct state new drop; }; }'", "service peer"},
		{"notrack of nft", "nft 'table inet mine { chain c { type filter hook prerouting priority -350; ip daddr 10.96.0.0/12 notrack; }; }'", "service"},
		{"chains of nft in iptables' table", "nft 'add chain ip filter sub; add chain ip filter mine { type filter hook forward priority -5; policy drop; }; " +
			"add rule ip filter mine jump sub; add rule ip filter sub tcp dport 8080 accept'", "service peer"},
		{"a healthy chain of nft in iptables' table", "nft 'add chain ip filter sub; add chain ip filter mine { type filter hook forward priority -5; " +
			"policy drop; }; add rule ip filter mine jump sub; add rule ip filter sub accept'", ""},
		{"notrack of nft in iptables' table", "nft 'add table ip raw; add chain ip raw pre { type filter hook prerouting priority -300; }; " +
			"add rule ip raw pre ip saddr 10.244.0.0/16 notrack'", "service peer"},
		{"notrack of the replies of endpoints", "iptables-nft -t raw -I PREROUTING -p tcp --sport 53 -j NOTRACK", "service"},
		{"notrack of another port", "iptables-nft -t raw -I PREROUTING -p tcp --sport 54 -j NOTRACK", ""},
		{"a sleeping table of nft", "nft 'table inet mine { flags dormant; chain c { type filter hook prerouting priority -5; drop; }; }'", ""},
	} {
		run("node", "nft flush ruleset; iptables-nft-restore", save)
		run("node", c.change, "")
		lost := ""
		for _, to := range [][2]string{{"service", "10.96.0.10:53"}, {"peer", "192.168.157.134:8080"}} {
			if !arrives(to[1]) {
				lost = strings.TrimSpace(lost + " " + to[0])
			}
		}
		sets := mustParse(t, run("node", "iptables-nft-save 2>/dev/null", ""))
		if err := spaces["node"].Do(t.Context(), func() error {
			tables, err := nftables.ReadForeign(t.Context())
			sets = append(sets, &ruleset.Set{Foreign: tables})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		found := ""
		for _, f := range Judge(sets, Options{Links: []string{"eth0", "veth1", "veth2"}, Uplink: "eth0"}).Findings {
			if strings.HasPrefix(f.Name, "kubeproxy.way.") {
				found += f.Name + " " + f.Message + "\n"
			}
		}
		if lost != c.lost || (found == "") != (lost == "") {
			t.Errorf("%s: lost: %q, want %q; found: %s", c.what, lost, c.lost, found)
		}
	}
}
