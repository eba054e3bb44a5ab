package datapath

import (
	"cmp"
	"strings"
	"testing"
	"time"

	"nodegate/checks/checkstest"
)

// TestProveService: two failed connections accuse the node only of what loses packets to this address in a copy of its network.
func TestProveService(t *testing.T) {
	node := newNetns(t)
	runIn(t, node, "sh", "-ec", "ip link set lo up; ip addr add 10.96.0.1/32 dev lo")
	loss := func(more, to string) string {
		return `{"losses": [{"kind": "rule", "family": "ip", "table": "filter", "chain": "OUTPUT", "position": 1, "cured": true,
			"rule": "-A OUTPUT -j DROP", ` + more + `"flows": [{"name": "node", "kind": "service", "service": "default/kubernetes:https",
			"node": true, "to": "` + to + `", "protocol": 6, "sent": 3, "lost": 3, "why": "no answer"}]}]}`
	}
	for _, c := range []struct {
		what, packets string
		to            string // 10.96.0.1:443 if empty
		listens       bool
		lost, unknown string
	}{
		{what: "a rule", packets: loss("", "10.96.0.1:443"), lost: "`-A OUTPUT -j DROP`, loses them"},
		{what: "another address", packets: loss("", "10.96.0.9:443"), unknown: "10.96.0.1:443 failed (refused): no rule or route"},
		{what: "a NetworkPolicy", packets: loss(`"policy": true, `, "10.96.0.1:443"), unknown: "no rule or route"},
		{what: "the endpoint", packets: "{}", unknown: "no rule or route"},
		{what: "no Service", packets: loss("", "10.96.0.1:443"), to: "10.96.0.1:444", unknown: "not tried, because kube-proxy's rules have no Service"},
		{what: "no copy", packets: `{"skipped": "no Pod has run"}`, unknown: "(refused): no Pod has run"},
		{what: "healthy", packets: loss("", "10.96.0.1:443"), listens: true},
	} {
		m := checkstest.ProxyNode(checkstest.ProxySave, "")
		m.Packets = c.packets
		if c.listens {
			listen(t, node, "10.96.0.1:443")
		}
		proof, err := proveIn(deadline(t), node, m.Host(), cmp.Or(c.to, "10.96.0.1:443"), ServiceOptions{Timeout: time.Second})
		if proof.Pass != c.listens || (err != nil) != (c.unknown != "") || err != nil && !strings.Contains(err.Error(), c.unknown) ||
			!strings.Contains(proof.Lost, c.lost) || (proof.Remedy != "") != (c.lost != "") {
			t.Errorf("%s: %+v, %v", c.what, proof, err)
		}
	}
}
