package checkstest

import (
	_ "embed"
	"strings"
	"testing"

	"nodegate/internal/host/hosttest"
)

// ProxySave has the rules of kube-proxy 1.31 for one Service, as iptables-save prints them.
//
//go:embed kube-proxy.iptables-save
var ProxySave string

// Parts of ProxySave that tests change.
const (
	DropInvalid = "-A KUBE-FORWARD -m conntrack --ctstate INVALID -m nfacct --nfacct-name  ct_state_invalid_dropped_pkts -j DROP\n"
	AcceptMark  = "-A KUBE-FORWARD -m comment --comment \"kubernetes forwarding rules\" -m mark --mark 0x4000/0x4000 -j ACCEPT\n"
	ReturnClear = "-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN\n-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0\n"
	Masquerade  = "-A KUBE-POSTROUTING -m comment --comment \"kubernetes service traffic requiring SNAT\" -j MASQUERADE --random-fully\n"
	OldForm     = "-A KUBE-POSTROUTING -m comment --comment \"kubernetes service traffic requiring SNAT\" -m mark --mark 0x4000/0x4000 -j " +
		"MASQUERADE --random-fully\n"
)

// Changed returns ProxySave with each first text of a pair replaced by the second.
func Changed(t *testing.T, pairs ...string) string {
	t.Helper()
	text := ProxySave
	for i := 0; i < len(pairs); i += 2 {
		if strings.Count(text, pairs[i]) != 1 {
			t.Fatalf("%q is not in ProxySave exactly once", pairs[i])
		}
		text = strings.Replace(text, pairs[i], pairs[i+1], 1)
	}
	return text
}

// ProxyNode returns a node with these rules and this value of be_liberal; "" means absent.
func ProxyNode(save, liberal string) *hosttest.Machine {
	m := &hosttest.Machine{Files: map[string]string{}, Rules: map[string]string{"iptables-legacy-save": ""}}
	if save != "" {
		m.Rules["iptables-nft-save"] = save
	}
	if liberal != "" {
		m.Sysctl("net/netfilter/nf_conntrack_tcp_be_liberal", liberal)
	}
	return m
}
