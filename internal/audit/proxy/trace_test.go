package proxy

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/audit/path"
	"nodegate/internal/require"
)

// TestTraces compares the ways to a Service with literals, in both modes and from every sender.
func TestTraces(t *testing.T) {
	for _, c := range []struct{ file, service, from, want string }{
		{"iptables-save.txt", "prod/np", "100.96.9.9", `
100.96.9.9 to 10.104.34.55:80: pass
nat PREROUTING KUBE-SERVICES, nat KUBE-SERVICES KUBE-SVC-7FSGN2D7XFJNQ2EL
0.333 forwarded 100.96.1.1:80 100.96.1.2:80 100.96.1.3:80`},
		{"iptables-save.txt", "prod/np", "100.96.1.1", `
100.96.1.1 to 10.104.34.55:80: pass
nat PREROUTING KUBE-SERVICES, nat KUBE-SERVICES KUBE-SVC-7FSGN2D7XFJNQ2EL
0.333 forwarded 100.96.1.1:80 masqueraded
0.333 forwarded 100.96.1.2:80 100.96.1.3:80`},
		{"iptables-save.txt", "prod/np", "outside", `
other machines to node port:31137: pass
nat PREROUTING KUBE-SERVICES, nat KUBE-SERVICES KUBE-NODEPORTS, nat KUBE-NODEPORTS KUBE-EXT-7FSGN2D7XFJNQ2EL, nat KUBE-EXT-7FSGN2D7XFJNQ2EL KUBE-MARK-MASQ, nat KUBE-MARK-MASQ MARK, nat KUBE-EXT-7FSGN2D7XFJNQ2EL KUBE-SVC-7FSGN2D7XFJNQ2EL
0.333 forwarded 100.96.1.1:80 100.96.1.2:80 100.96.1.3:80 masqueraded`},
		{"iptables-save.txt", "prod/empty", "100.96.9.9", `
100.96.9.9 to 10.97.80.155:80: fail
filter FORWARD KUBE-SERVICES, filter KUBE-SERVICES REJECT
1.000 rejected 10.97.80.155:80 untranslated`},
		{"nft-list-ruleset.json", "prod/np", "100.96.9.9", `
100.96.9.9 to 10.104.34.55:80: pass
ip kube-proxy nat-prerouting jump services, ip kube-proxy services goto service-CFIEJ2HK-prod/np/tcp/
0.333 forwarded 100.96.1.1:80 100.96.1.2:80 100.96.1.3:80`},
		{"nft-list-ruleset.json", "prod/np", "outside", `
other machines to node port:31137: pass
ip kube-proxy nat-prerouting jump services, ip kube-proxy services goto external-CFIEJ2HK-prod/np/tcp/, ip kube-proxy external-CFIEJ2HK-prod/np/tcp/ jump mark-for-masquerade, ip kube-proxy mark-for-masquerade meta mark set, ip kube-proxy external-CFIEJ2HK-prod/np/tcp/ goto service-CFIEJ2HK-prod/np/tcp/
0.333 forwarded 100.96.1.1:80 100.96.1.2:80 100.96.1.3:80 masqueraded`},
		{"nft-list-ruleset.json", "prod/empty", "100.96.9.9", `
100.96.9.9 to 10.97.80.155:80: fail
ip kube-proxy filter-forward jump service-endpoints-check, ip kube-proxy service-endpoints-check goto reject-chain, ip kube-proxy reject-chain reject
1.000 rejected 10.97.80.155:80 untranslated`},
	} {
		t.Run(c.file+" "+c.service+" "+c.from, func(t *testing.T) {
			sets := mustParse(t, readFile(t, c.file))
			rep := Judge(sets, Options{})
			list, err := Traces(&rep, sets, &Options{}, c.service, c.from)
			require.NoError(t, err)
			var b strings.Builder
			for _, one := range list {
				fmt.Fprintf(&b, "\n%s to %s: %s\n", one.From, one.To, one.Verdict)
				for i, s := range one.Steps {
					fmt.Fprint(&b, map[bool]string{true: ", "}[i > 0], s.Table, " ", s.Chain, " ", s.Does)
				}
				for _, w := range one.Ways {
					fmt.Fprintf(&b, "\n%.3f %s %s%s%s", w.Chance, w.End, strings.Join(w.To, " "),
						map[bool]string{true: " masqueraded"}[w.Masquerade], map[bool]string{false: " untranslated"}[w.Translated])
				}
			}
			assert.Equal(t, b.String(), c.want)
		})
	}
}

// TestTraceDoubt checks that a condition which is not known gives two ways.
func TestTraceDoubt(t *testing.T) {
	text := editedSave(t, readFile(t, "flannel-docker.txt"), before(beforePrerouting, "-A PREROUTING -m set --match-set x src -j ACCEPT"))
	sets := mustParse(t, text)
	rep := Judge(sets, Options{})
	list, err := Traces(&rep, sets, &Options{}, "default/service1", "10.244.0.9")
	if err != nil || len(list) != 1 || list[0].Verdict.String() != "unknown" || len(list[0].Ways) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	for _, w := range list[0].Ways {
		if w.Sure || w.Translated != (len(w.To) == 3) {
			t.Errorf("%+v", w)
		}
		if !w.Translated && w.Steps[0].Unsure != "-m set --match-set x src" {
			t.Errorf("the condition is %q", w.Steps[0].Unsure)
		}
	}
}

// TestTraceElsewhere checks that a translation of another program is not one of kube-proxy.
func TestTraceElsewhere(t *testing.T) {
	for _, target := range []string{"DNAT --to-destination 10.9.9.9:53", "REDIRECT --to-ports 15001"} {
		text := editedSave(t, readFile(t, "flannel-docker.txt"), before(beforePrerouting, "-A PREROUTING -p tcp -j "+target))
		sets := mustParse(t, text)
		rep := Judge(sets, Options{})
		list, err := Traces(&rep, sets, &Options{}, "default/service1", FromPod)
		if err != nil || len(list) != 1 || list[0].Verdict.String() != "fail" || list[0].Ways[0].Translated {
			t.Errorf("%s: %+v, %v", target, list, err)
		}
	}
}

// TestTraceReply checks replies that conntrack does not see, and those to an address that the node does not have.
func TestTraceReply(t *testing.T) {
	own := func(a netip.Addr) path.Answer {
		if a.String() == "192.168.157.133" {
			return path.Yes
		}
		return path.No
	}
	for change, want := range map[edit]string{
		rawTable("-A PREROUTING -s 10.244.77.0/24 -j NOTRACK"):                                                       "pass",
		rawTable("-A PREROUTING -s 10.244.1.0/24 -j NOTRACK"):                                                        "fail",
		before(beforeMasquerade, "-A POSTROUTING -s 10.244.0.0/16 -j SNAT --to-source 10.1.2.3"):                     "unknown",
		before(beforeMasquerade, "-A POSTROUTING -s 10.244.0.0/16 -j SNAT --to-source 192.168.157.133"):              "pass",
		before(beforeMasquerade, "-A POSTROUTING -s 10.244.0.0/16 -m comment --comment \"no change\" -j MASQUERADE"): "pass",
	} {
		sets := mustParse(t, editedSave(t, readFile(t, "flannel-docker.txt"), change))
		rep := Judge(sets, Options{})
		list, err := Traces(&rep, sets, &Options{Own: own}, "default/service1", "10.244.0.9")
		if err != nil || len(list) != 1 || list[0].Verdict.String() != want {
			t.Errorf("%+v: %+v, %v", change, list, err)
		}
	}
}
