package audit

import (
	"context"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/verdict"
)

// TestExcuse: a kube-proxy that does not answer is not to blame if a rule may drop the audit's own query, or the answer.
func TestExcuse(t *testing.T) {
	const hung, absent, silent = "kubeproxy.process.hung", "kubeproxy.process.absent", "kubeproxy.process.silent"
	const nft = `{"nftables": [{"table": {"family": "inet", "name": "fw"}}, {"chain": {"family": "inet", "table": "fw", "name": "in", "handle": 1,
		"type": "filter", "hook": "input", "prio": 0, "policy": "drop"}}, {"rule": {"family": "inet", "table": "fw", "chain": "in", "handle": 2,
		"expr": [{"match": {"op": "==", "left": {"meta": {"key": "iifname"}}, "right": "LINK"}}, {"accept": null}]}}]}`
	for _, c := range []struct{ process, rules, want, by string }{
		{"kube-proxy", "", hung, "kill -ABRT"},
		{"kube-proxy", "-A INPUT -i lo -j DROP", silent, "`iptables -t filter -D INPUT -i lo -j DROP`"},
		{"kube-proxy", "-A INPUT -i eth0 -j DROP", hung, ""},
		{"kube-proxy", "-A INPUT -i lo -j ACCEPT\n-A INPUT -j DROP", hung, ""},
		{"kube-proxy", "-A OUTPUT -p tcp -m tcp --dport 10256 -j REJECT --reject-with tcp-reset", silent, "-D OUTPUT"},
		{"kube-proxy", "-A OUTPUT -p tcp -m tcp --dport 10249 -j DROP", hung, ""},
		{"kube-proxy", "-A OUTPUT -p tcp -m tcp --sport 10256 -j DROP", silent, "-D OUTPUT"},
		{"kube-proxy", "-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j DROP", silent, "-D INPUT"},
		{"kube-proxy", "-A OUTPUT -m set --match-set ban dst -j DROP", silent, "ipset list ban"},
		{"kube-proxy", "-A INPUT -d 10.0.0.0/8 -j DROP\n-A INPUT ! -i lo -j DROP", hung, ""},
		{"kube-proxy", ":INPUT DROP [0:0]\n-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT", silent, "-P INPUT ACCEPT"},
		{"kube-proxy", strings.Replace(nft, "LINK", "eth0", 1), silent, "policy accept"},
		{"kube-proxy", strings.Replace(nft, "LINK", "lo", 1), hung, ""},
		{"bash", "", absent, ""},
		{"bash", "-A INPUT -i lo -j DROP", silent, "-D INPUT"},
	} {
		name, rules := "iptables-nft-save", "*filter\n:INPUT ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n"+c.rules+"\nCOMMIT\n"
		if strings.HasPrefix(c.rules, ":") {
			rules = "*filter\n:OUTPUT ACCEPT [0:0]\n" + c.rules + "\nCOMMIT\n"
		} else if strings.HasPrefix(c.rules, "{") {
			name, rules = "nft", c.rules
		}
		m := &hosttest.Machine{Rules: map[string]string{name: rules}, Files: map[string]string{"/proc/7/stat": "7 (a) S 1 7",
			"/proc/7/cmdline": c.process + "\x00", "/proc/self/ns/net": "-> net:[1]", "/proc/7/ns/net": "-> net:[1]",
			"/proc/self/ns/pid": "-> pid:[4026531836]"}}
		n := NewMachine(m.Host())
		n.Presence.Get = func(context.Context, string) ([]byte, int, error) { return nil, 0, context.DeadlineExceeded }
		found := n.Proxy(t.Context())
		if len(found) != 1 || found[0].Name != c.want || !strings.Contains(found[0].Remedy, c.by) {
			t.Errorf("%s with %s: %+v, want %s with %q", c.process, c.rules, found, c.want, c.by)
		} else if c.want == silent {
			assert.Equal(t, found[0].Verdict, verdict.Unknown, "%s", c.rules)
		}
	}
}
