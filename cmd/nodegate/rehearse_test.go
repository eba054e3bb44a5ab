package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/host/netns"
	"nodegate/internal/require"
)

// rehearsedNode is a node with two Pods, of which a Service has one, with another node and a CNI that masquerades.
const rehearsedNode = `
echo 1 >/proc/sys/net/ipv4/ip_forward
ip link add eth0 type veth peer name e1 netns $other; ip addr add 192.168.50.1/24 dev eth0; ip link set eth0 up
ip link add cni0 type bridge; ip addr add 10.244.0.1/24 dev cni0; ip link set cni0 up
for p in 1 2; do ip link add veth$p type veth peer name p$p netns $other; ip link set veth$p master cni0 up; bridge link set dev veth$p hairpin on; done
for l in e1 p1 p2; do nsenter --net=$other ip link set $l up; done
for p in 1 2; do ip neigh add 10.244.0.$((p+3)) lladdr 0a:58:0a:f4:00:0$p dev cni0; bridge fdb add 0a:58:0a:f4:00:0$p dev veth$p master static; done
ip route add default via 192.168.50.254; ip route add 10.244.1.0/24 via 192.168.50.2
iptables-nft-restore <<'X'
*nat
:KUBE-SERVICES - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-MARK-MASQ - [0:0]
:KUBE-SVC-AAAAAAAAAAAAAAAA - [0:0]
:KUBE-SEP-AAAAAAAAAAAAAAA2 - [0:0]
:KUBE-SEP-AAAAAAAAAAAAAAA3 - [0:0]
:FLANNEL-POSTRTG - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
-A POSTROUTING -j FLANNEL-POSTRTG
-A FLANNEL-POSTRTG -s 10.244.0.0/16 ! -d 10.244.0.0/16 -j MASQUERADE
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0
-A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully
-A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -m comment --comment "prod/web:http cluster IP" -m tcp --dport 80 -j KUBE-SVC-AAAAAAAAAAAAAAAA
-A KUBE-SVC-AAAAAAAAAAAAAAAA ! -s 10.244.0.0/16 -d 10.96.0.1/32 -p tcp -m comment --comment "prod/web:http cluster IP" -m tcp --dport 80 -j KUBE-MARK-MASQ
-A KUBE-SVC-AAAAAAAAAAAAAAAA -m comment --comment "prod/web:http -> 10.244.0.4:8080" -m statistic --mode random --probability 0.50000000000 -j KUBE-SEP-AAAAAAAAAAAAAAA2
-A KUBE-SVC-AAAAAAAAAAAAAAAA -m comment --comment "prod/web:http -> 10.244.1.4:8080" -j KUBE-SEP-AAAAAAAAAAAAAAA3
-A KUBE-SEP-AAAAAAAAAAAAAAA2 -s 10.244.0.4/32 -m comment --comment "prod/web:http" -j KUBE-MARK-MASQ
-A KUBE-SEP-AAAAAAAAAAAAAAA2 -p tcp -m comment --comment "prod/web:http" -m tcp -j DNAT --to-destination 10.244.0.4:8080
-A KUBE-SEP-AAAAAAAAAAAAAAA3 -s 10.244.1.4/32 -m comment --comment "prod/web:http" -j KUBE-MARK-MASQ
-A KUBE-SEP-AAAAAAAAAAAAAAA3 -p tcp -m comment --comment "prod/web:http" -m tcp -j DNAT --to-destination 10.244.1.4:8080
COMMIT
X
`

// TestRehearse: what a change loses is named, with what loses it; what loses nothing passes, and the node stays as it is.
func TestRehearse(t *testing.T) {
	hosttest.NeedRoot(t)
	hosttest.NeedBridgeNetfilter(t)
	for _, program := range []string{"ip", "bridge", "nsenter", "nft", "iptables-nft-restore"} {
		hosttest.NeedProgram(t, program)
	}
	t.Parallel()
	if !hosttest.OwnNetns(t) {
		return
	}
	other, err := netns.New(t.Context())
	require.NoError(t, err)
	t.Cleanup(other.Close)
	run := func(script string) (string, int) {
		cmd := exec.Command("bash", "-c", script)
		cmd.Env = append(os.Environ(), "XTABLES_LOCKFILE="+filepath.Join(t.TempDir(), "lock"), fmt.Sprintf("other=/proc/%d/fd/%d", os.Getpid(), other.FD()))
		out, _ := cmd.CombinedOutput()
		return string(out), cmd.ProcessState.ExitCode()
	}
	out, code := run("set -e" + rehearsedNode)
	require.True(t, code == 0, "%s", out)
	const state = "iptables-nft-save | sed 's/ \\[.*//; /^#/d'; ip rule; ip route; cat /proc/sys/net/ipv4/ip_forward; ls /etc/rehearsed"
	before, _ := run(state)
	rules := filepath.Join(t.TempDir(), "rules.nft")
	require.NoError(t, os.WriteFile(rules, []byte("table inet guard {\n chain c { type filter hook forward priority 0; policy drop; }\n}\n"), 0o644))
	var rehearsals sync.WaitGroup
	slots := make(chan struct{}, 4) // they mostly wait, and change nothing
	for _, c := range []struct {
		do    string
		code  int
		wants []string
	}{
		{"-- iptables-nft -A INPUT -p tcp --dport 9999 -j DROP", 0, []string{"No connection of", "open connections   all", "ip filter +1"}},
		{"-- iptables-nft -P FORWARD DROP", 1, []string{"the policy DROP of chain FORWARD of table filter (iptables-nft)", "prod/web", "ip filter, policy DROP of FORWARD +1"}},
		{"--rules " + rules, 1, []string{"the policy DROP of chain c of table inet guard"}},
		{"-- iptables-nft -t nat -F", 1, []string{"gone: ip nat -", "until kube-proxy and kubelet write their rules again (30 s): ", "machines outside the cluster"}},
		{"-- iptables-nft -t nat -F KUBE-SERVICES", 1, []string{"lasting            0; until"}},
		{"-- sh -c 'echo 0 >/proc/sys/net/ipv4/ip_forward'", 1, []string{"net.ipv4.ip_forward 1 -> 0\n"}},
		{"-- sh -c 'ip rule add pref 9 lookup 52; ip route add blackhole 10.244.0.0/16 table 52'", 1, []string{"the routing rule `9: from all lookup 52`"}},
		{"-- ip route del 10.244.1.0/24", 3, []string{"not tried          packets to 10.244.1.4 go to 192.168.50.254 by eth0 instead of 192.168.50.2 by eth0"}},
		{"-- sh -c 'echo x >/etc/rehearsed; exit 5'", 3, []string{"/etc/rehearsed", "the command ended with status 5"}},
		{"-- nft 'table arp f { chain i { type filter hook input priority 0; policy drop; }; }'", 1, []string{"chain i of table arp f"}},
		{"-- nft 'table ip f { set s { type ipv4_addr; flags interval; elements = { 10.0.0.0/8 }; }; chain c { type filter hook forward priority 0; ip saddr @s drop; }; }'", 1, []string{"from Pods"}},
		{"--rules /dev/zero", 2, []string{"/dev/zero"}},
		{"-- sh -c 'sleep 9 & exit 0'", 3, []string{"left running"}},
		{"-- iptables-nft-restore --noflush </dev/stdin <<'X'\n*filter\n-I FORWARD -j DROP\nCOMMIT\nX", 1, []string{"rule 1 of chain FORWARD"}},
		{"--timeout 5s -- sh -c 'sleep 100 & sleep 100'", 3, []string{"the command had not ended in its time"}},
	} {
		slots <- struct{}{}
		rehearsals.Go(func() {
			defer func() { <-slots }()
			out, code := run("nodegate rehearse --timeout 30s " + c.do)
			assert.True(t, code == c.code, "%s: exit %d\n%s", c.do, code, out)
			for _, want := range c.wants {
				assert.Contains(t, out, want, "%s", c.do)
			}
		})
	}
	rehearsals.Wait()
	if after, _ := run(state); after != before {
		t.Errorf("the node was\n%s\nand is\n%s", before, after)
	}
}
