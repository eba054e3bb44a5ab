package datapath

import (
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestTraceService drops the packets of one connection at different places and checks that the kernel's trace names each
// place, also if the audit's walk cannot decide the condition.
func TestTraceService(t *testing.T) {
	node := newNode(t)
	sysctl(t, node, callKey, "1")
	_, client := podOf(t, node, 2)
	server, _ := podOf(t, node, 3)
	listen(t, server, "10.244.0.3:8080")
	for _, chain := range []string{"PREROUTING", "OUTPUT"} {
		runIn(t, node, "iptables-nft", "-t", "nat", "-A", chain, "-d", service, "-p", "tcp", "--dport", "80", "-j", "DNAT",
			"--to-destination", "10.244.0.3:8080")
	}
	const table = "table inet fw { set s { type ipv4_addr; flags interval; elements = { 10.244.0.0/24 }; }; chain c { type filter hook "
	for _, c := range []struct {
		what, add, remove string
		from              string
		end, at           string // table and chain of the rule that drops
		reply             bool
		proof             string // what a policy's probe says; "": the node lost a packet
	}{
		{what: "healthy", add: "true", from: client, end: endLeft, proof: "pass"},
		{what: "healthy, from the node", add: "true", end: endLeft, proof: "pass"},
		{what: "nobody listens", add: "iptables-nft -t nat -I OUTPUT -d " + service + " -p tcp -j DNAT --to 10.244.0.3:9",
			remove: "iptables-nft -t nat -D OUTPUT 1", end: endLeft, proof: "unknown"},
		{what: "a silent endpoint", add: "iptables-nft -t nat -I OUTPUT -d " + service + " -p tcp -j DNAT --to 10.244.0.9:9",
			remove: "iptables-nft -t nat -D OUTPUT 1", end: endLeft, proof: "unknown"},
		{what: "no endpoint", add: "iptables-nft -N KUBE-SERVICES; iptables-nft -A OUTPUT -j KUBE-SERVICES; iptables-nft -A KUBE-SERVICES -j REJECT",
			end: endDropped, at: "filter KUBE-SERVICES", proof: "unknown"},
		{what: "a NetworkPolicy", add: "iptables-nft -N cali-tw-web; iptables-nft -I OUTPUT -j cali-tw-web; iptables-nft -A cali-tw-web -j DROP",
			end: endDropped, at: "filter cali-tw-web", proof: "unknown"},
		{what: "raw", add: "iptables-nft -t raw -I PREROUTING -s 10.244.0.2 -j DROP", from: client, end: endDropped, at: "raw PREROUTING"},
		{what: "mangle", add: "iptables-nft -t mangle -I PREROUTING -i cni0 -j DROP", from: client, end: endDropped, at: "mangle PREROUTING"},
		{what: "forward", add: "iptables-nft -I FORWARD -j REJECT", from: client, end: endDropped, at: "filter FORWARD"},
		{what: "a policy", add: "iptables-nft -P FORWARD DROP", remove: "iptables-nft -P FORWARD ACCEPT", from: client, end: endDropped, at: "filter FORWARD"},
		{what: "a byte code", add: `iptables-nft -I FORWARD -m bpf --bytecode "1,6 0 0 65535" -j DROP`, from: client, end: endDropped, at: "filter FORWARD"},
		{what: "a spent quota", add: "iptables-nft -I FORWARD -j DROP; iptables-nft -I FORWARD -m quota --quota 1 -j ACCEPT",
			from: client, end: endDropped, at: "filter FORWARD"},
		{what: "a mark", add: "iptables-nft -t mangle -I PREROUTING -j MARK --set-mark 5; iptables-nft -I FORWARD -m mark --mark 5 -j DROP",
			from: client, end: endDropped, at: "filter FORWARD"},
		{what: "replies", add: "iptables-nft -I FORWARD -p tcp --sport 8080 -j DROP", from: client, end: endDropped, at: "filter FORWARD", reply: true},
		{what: "a set of nft", add: "nft '" + table + "prerouting priority -150; ip saddr @s drop; }; }'", from: client, end: endDropped, at: "fw c"},
		{what: "postrouting", add: "nft '" + table + "postrouting priority 0; policy drop; ip saddr 9.9.9.9 accept; }; }'", from: client, end: endDropped, at: "fw c"},
		{what: "output", add: "nft '" + table + "output priority 0; oifname cni0 meta skuid 0 drop; }; }'", end: endDropped, at: "fw c"},
		{what: "the node's replies", add: "iptables-nft -I INPUT -i cni0 -j DROP", end: endDropped, at: "filter INPUT", reply: true},
		{what: "a queue", add: "iptables-nft -I FORWARD -j NFQUEUE --queue-num 77", from: client, end: endQueued, at: "filter FORWARD"},
		{what: "a routing rule", add: "ip rule add iif cni0 lookup 99 pref 99; ip route add blackhole default table 99",
			remove: "ip rule del pref 99; ip route flush table 99", from: client, end: "lost after prerouting"},
	} {
		t.Run(c.what, func(t *testing.T) {
			runIn(t, node, "sh", "-ec", c.add)
			got, err := traceIn(deadline(t), node, service+":80", ServiceOptions{Netns: c.from, Timeout: 300 * time.Millisecond})
			must(t, err)
			p := got.Request
			if c.reply {
				p = got.Reply
			}
			at := ""
			if s := p.Died(); s != nil {
				at = s.Table + " " + s.Chain
			}
			if p.End != c.end || at != c.at || (got.Failed == "") != (c.proof == "pass") {
				var text strings.Builder
				must(t, got.Render(&text))
				t.Errorf("ends %q at %q, failed %q; want %q at %q\n%s", p.End, at, got.Failed, c.end, c.at, &text)
			}
			proof, err := got.proof()
			is := map[bool]string{proof.Pass: "pass", err != nil: "unknown"}[true]
			if is != c.proof || (proof.Lost == "") != (is != "") || proof.Lost != "" && !strings.Contains(proof.Remedy, "--trace") {
				t.Errorf("proof: %+v %v, want %q", proof, err, c.proof)
			}
			reset := "for x in filter mangle raw; do iptables-nft -t $x -F; done; nft delete table inet fw 2>/dev/null; true; " + c.remove
			runIn(t, node, "sh", "-c", reset)
			must(t, node.Do(deadline(t), func() error {
				out, err := exec.Command("nft", "list", "tables").Output()
				if strings.Contains(string(out), "nodegate") {
					t.Errorf("left behind: %s", out)
				}
				return err
			}))
		})
	}
}
