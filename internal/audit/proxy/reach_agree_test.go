package proxy

import (
	"net/netip"
	"strings"
	"testing"

	"nodegate/internal/audit/path"
)

// TestReachAgrees: the check, which reads the Services only if some rule may take their packets, finds
// what the audit finds.
func TestReachAgrees(t *testing.T) {
	for _, own := range []string{"192.168.157.133", "10.96.0.10", "10.244.0.5"} {
		local := path.Route{To: netip.MustParsePrefix("10.244.0.0/24"), Link: "cni0"}
		other := path.Route{To: netip.MustParsePrefix("10.244.1.0/24"), Link: "eth0"}
		opts := Options{Uplink: "eth0", Links: []string{"eth0", "cni0"}, Routes: []path.Route{local, other}, PodRoutes: []path.Route{local}, Own: func(a netip.Addr) path.Answer {
			if a.String() == own {
				return path.Yes
			}
			return path.No
		}}
		for rule, change := range map[string]edit{
			"none":                   before(beforeForward, ""),
			"nat, Pods":              before(beforeMasquerade, "-A POSTROUTING -s 10.244.0.0/16 -j ACCEPT"),
			"nat, others":            before(beforeMasquerade, "-A POSTROUTING ! -s 10.244.0.0/16 -j ACCEPT"),
			"INPUT, one port":        before("^-A INPUT -j KUBE-FIREWALL", "-A INPUT -p tcp -m tcp --dport 6443 -j DROP"),
			"INPUT, DNS":             before("^-A INPUT -j KUBE-FIREWALL", "-A INPUT -p udp -m udp --dport 53 -j DROP"),
			"INPUT, not translated":  before("^-A INPUT -j KUBE-FIREWALL", "-A INPUT -m conntrack ! --ctstate DNAT -p udp -m udp --dport 53 -j DROP"),
			"INPUT, the Pods' link":  before("^-A INPUT -j KUBE-FIREWALL", "-A INPUT -i cni0 -j REJECT"),
			"FORWARD, one port":      before(beforeForward, "-A FORWARD -p udp -m udp --dport 53 -j DROP"),
			"FORWARD, to Pods":       before(beforeForward, "-A FORWARD -d 10.244.0.0/16 -j DROP"),
			"FORWARD, the uplink":    before(beforeForward, "-A FORWARD -i eth0 -j DROP"),
			"FORWARD, to the uplink": before(beforeForward, "-A FORWARD -o eth0 -j DROP"),
			"FORWARD, first packets": before(beforeForward, "-A FORWARD -m conntrack ! --ctstate DNAT,ESTABLISHED -o eth0 -j DROP"),
			"FORWARD, the bridge":    before(beforeForward, "-A FORWARD -i cni0 -o cni0 -j DROP"),
			"FORWARD, a node's Pods": before(beforeForward, "-A FORWARD -d 10.244.0.0/24 -j DROP"),
			"FORWARD, from and to":   before(beforeForward, "-A FORWARD -s 10.244.0.0/24 -d 10.244.1.0/24 -j DROP"),
			"FORWARD, replies":       before(beforeForward, "-A FORWARD -d 10.244.0.0/24 -o cni0 ! -s 10.244.0.0/16 -j DROP"),
			"OUTPUT, to Pods":        before("^-A OUTPUT .*load balancer firewall", "-A OUTPUT -d 10.244.0.0/16 -m conntrack --ctstate NEW -j DROP"),
			"OUTPUT, one port":       before("^-A OUTPUT .*load balancer firewall", "-A OUTPUT -p tcp -m tcp --dport 3000 -j DROP"),
			"raw, one Service":       rawTable("-A PREROUTING -d 10.96.0.10/32 -j NOTRACK"),
		} {
			text := editedSave(t, readFile(t, "flannel-docker.txt"), change)
			text = editedSave(t, text, del("^-A KUBE-FIREWALL")) // which may take packets to this node, so that all Services are judged
			audit, check := "", ""
			for _, f := range Judge(mustParse(t, text), opts).Findings {
				if strings.HasPrefix(f.Name, "kubeproxy.way.") {
					audit += f.Name + " " + f.Message + "\n"
				}
			}
			_, found := Reach(mustParse(t, text), opts)
			for _, f := range found {
				check += f.Name + " " + f.Message + "\n"
			}
			if own == "192.168.157.133" && (audit == "") != (rule == "none" || strings.HasPrefix(rule, "INPUT, DNS") || strings.HasPrefix(rule, "INPUT, not")) {
				t.Errorf("%s: %s", rule, audit)
			}
			if check != audit {
				t.Errorf("%s, own %s: check\n%saudit\n%s", rule, own, check, audit)
			}
		}
	}
}
