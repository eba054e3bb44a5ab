package replay_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"nodegate/internal/audit/replay"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/host/netns"
	"nodegate/internal/require"
)

// TestMainAnswers: each change of the node is quoted as its program prints it, and only a change has another fingerprint.
func TestMainAnswers(t *testing.T) {
	hosttest.NeedBridgeNetfilter(t)
	for _, program := range []string{"ip", "bridge", "nft", "iptables-nft-restore"} {
		hosttest.NeedProgram(t, program)
	}
	if !hosttest.OwnNetns(t) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	other, err := netns.New(ctx)
	require.NoError(t, err)
	t.Cleanup(other.Close)
	lock := t.TempDir() + "/lock"
	run := func(script string) {
		t.Helper()
		cmd := exec.CommandContext(ctx, "bash", "-ec", script)
		cmd.Env = append(os.Environ(), "XTABLES_LOCKFILE="+lock, fmt.Sprintf("other=/proc/%d/fd/%d", os.Getpid(), other.FD()))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	run(world)
	proxy, err := net.Listen("tcp4", "0.0.0.0:3128") // of the node
	require.NoError(t, err)
	t.Cleanup(func() { _ = proxy.Close() })
	ask := func(unless, sender string) (a replay.Answer) {
		t.Helper()
		q := replay.Question{Cluster: replay.Cluster{Services: cluster().Services, Servers: cluster().Servers}, Unless: unless, Sender: sender,
			Keys: []string{"AAAAAAAAAAAAAAAA", "BBBBBBBBBBBBBBBB"}}
		in, err := json.Marshal(q)
		require.NoError(t, err)
		var out bytes.Buffer
		require.NoError(t, replay.Main(ctx, bytes.NewReader(in), &out, nil))
		require.NoError(t, json.Unmarshal(out.Bytes(), &a))
		require.NoError(t, a.Err())
		return a
	}
	healthy := ask("", "")
	if len(healthy.Losses)+len(healthy.Refused) > 0 || len(healthy.Flows) == 0 || !ask(healthy.Fingerprint, "").Unchanged {
		t.Errorf("healthy: %+v", healthy)
	}
	pods := ask("", replay.FromPod)
	if len(pods.Flows) != 2 || slices.ContainsFunc(pods.Flows, func(f replay.Outcome) bool { return !f.Pod || len(f.At) != 1 }) {
		t.Errorf("from a Pod: %+v", pods.Flows)
	}
	for _, c := range []struct {
		do, undo, rule, owner string
		policy, taken         bool
	}{
		{do: "iptables-nft -I FORWARD -i cni0 -o eth0 -j DROP", undo: "iptables-nft -D FORWARD 1", rule: "-A FORWARD -i cni0 -o eth0 -j DROP"},
		{do: `nft 'table inet fw { chain c { type filter hook forward priority 0; iifname "cni0" drop; }; }'`, undo: "nft delete table inet fw",
			rule: `iifname "cni0" drop`},
		{do: `nft 'table inet fw { set ok { type ipv4_addr; elements = { 192.0.2.1 }; }; chain c { type filter hook forward priority 0; policy drop; ip saddr @ok counter accept; }; }'`,
			undo: "nft delete table inet fw", rule: ":c DROP but @ok"},
		{do: "ip rule add pref 100 from 10.244.0.0/16 lookup 99; ip route add blackhole default table 99", undo: "ip rule del pref 100; ip route flush table 99",
			rule: "100: from 10.244.0.0/16 lookup 99"},
		{do: "ip route add blackhole 10.244.1.4", undo: "ip route del blackhole 10.244.1.4", rule: "blackhole 10.244.1.4"},
		{do: "ip route replace blackhole 10.244.1.0/24", undo: "ip route replace 10.244.1.0/24 via 192.168.50.2", rule: "blackhole 10.244.1.0/24"},
		{do: "iptables-nft -N cali-x; iptables-nft -A FORWARD -j cali-x; iptables-nft -A cali-x -o eth0 -j DROP", undo: "iptables-nft -F FORWARD; iptables-nft -F cali-x; iptables-nft -X cali-x",
			rule: "-A cali-x -o eth0 -j DROP", owner: "Calico", policy: true},
		{do: "iptables-nft -t nat -I OUTPUT -p tcp --dport 80 -j DNAT --to-destination 127.0.0.1:3128", undo: "iptables-nft -t nat -D OUTPUT 1",
			rule: "-A OUTPUT -p tcp -m tcp --dport 80 -j DNAT --to-destination 127.0.0.1:3128", taken: true},
		{do: "iptables-nft -t nat -I PREROUTING -p tcp --dport 443 -j REDIRECT --to-ports 3128", undo: "iptables-nft -t nat -D PREROUTING 1",
			rule: "-A PREROUTING -p tcp -m tcp --dport 443 -j REDIRECT --to-ports 3128", taken: true},
	} {
		run(c.do)
		a := ask(healthy.Fingerprint, "")
		if !slices.ContainsFunc(a.Losses, func(l replay.Loss) bool {
			return strings.HasPrefix(l.Rule, c.rule) && l.Owner == c.owner && l.Policy == c.policy && l.Taken == c.taken && l.Cured
		}) {
			t.Errorf("%s: %+v", c.do, a.Losses)
		}
		run(c.undo)
	}
	if a := ask("", ""); len(a.Losses) > 0 {
		t.Errorf("undone: %+v", a.Losses)
	}
	run("ip addr del 10.244.0.1/24 dev cni0")
	astray := "10.244.0.4, a Pod of this node (web), whose route leaves by eth0 (`ip route get`)"
	if a := ask("", ""); !slices.Contains(a.Refused, astray) {
		t.Errorf("the bridge has no address: %q", a.Refused)
	}
	run("ip addr add 10.244.0.1/24 dev cni0")
	run("ip link add eth1 type veth peer name e2 netns $other; ip addr add 192.168.60.1/24 dev eth1; ip link set eth1 up; " +
		"nsenter --net=$other ip link set e2 up; ip route add throw 10.0.0.0/8 table 200; ip route add default via 192.168.60.254 dev eth1 table 200; " +
		"ip rule add pref 200 from 10.244.0.0/16 lookup 200")
	a := ask("", "")
	if len(a.Losses) != 1 || slices.ContainsFunc(a.Losses[0].Flows, func(f replay.Outcome) bool { return f.Doubt == "" }) {
		t.Errorf("a second uplink: %+v", a.Losses)
	}
}
