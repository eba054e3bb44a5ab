package proxy

import "testing"

const (
	svcNP  = "KUBE-SVC-7FSGN2D7XFJNQ2EL" // prod/np: 3 endpoints, node port
	extNP  = "KUBE-EXT-7FSGN2D7XFJNQ2EL"
	sepNP1 = "KUBE-SEP-KND7CFLS43625DNG" // 100.96.1.1:80
	sepNP2 = "KUBE-SEP-R347LUUZZVT2SLTH" // 100.96.1.2:80
	extLB  = "KUBE-EXT-GBS3FQUAWA63ERWZ" // prod/lb-local: externalTrafficPolicy Local
	svcLB  = "KUBE-SVC-GBS3FQUAWA63ERWZ"
	svlLB  = "KUBE-SVL-GBS3FQUAWA63ERWZ"
	svcST  = "KUBE-SVC-JB6GN5ZCZEO67566" // prod/sticky: affinity, 2 endpoints
	sepST1 = "KUBE-SEP-GOQFGDWKNQZ7MBHR"
	sepST2 = "KUBE-SEP-7UHQ5UJ5GFBUFPGF"
	svcEX  = "KUBE-SVC-QM5PIMX6ZJ6FY244" // prod/export: 10 endpoints
	sepEX1 = "KUBE-SEP-EODHGFFRZXPDDSVZ"
)

// iptablesBreakages lists faults of iptables mode. Each must give the named finding and no other.
var iptablesBreakages = []struct {
	name, want string
	edits      []edit
}{
	{"endpoint chain missing", "kubeproxy.rules.partial", []edit{del("^:" + sepNP1), delAll("^-A " + sepNP1)}},
	{"endpoint chain not declared", "kubeproxy.rules.partial", []edit{del("^:" + sepNP1)}},
	{"service chain missing", "kubeproxy.rules.partial", []edit{del("^:" + svcEX), delAll("^-A " + svcEX)}},
	{"KUBE-MARK-MASQ missing", "kubeproxy.rules.partial", []edit{del("^:KUBE-MARK-MASQ"), del("^-A KUBE-MARK-MASQ")}},
	{"loop", "kubeproxy.chain.damaged", []edit{after("^-A "+svcNP+" .*100.96.1.3", "-A "+svcNP+" -j "+extNP)}},
	{"service portal deleted", "kubeproxy.chain.damaged", []edit{del("^-A KUBE-SERVICES .*prod/export cluster IP")}},
	{"stale endpoint chain", "kubeproxy.chain.unreferenced", []edit{before("^:KUBE-SVC-7FSG", ":KUBE-SEP-AAAAAAAAAAAAAAAA - [0:0]")}},
	{"RETURN in a service chain", "kubeproxy.chain.damaged",
		[]edit{before("^-A "+svcNP+" .*100.96.1.1:80", "-A "+svcNP+" -j RETURN")}},
	{"RETURN in KUBE-SERVICES", "kubeproxy.chain.damaged",
		[]edit{before("^-A KUBE-SERVICES .*prod/np", "-A KUBE-SERVICES -j RETURN")}},
	{"ACCEPT in an endpoint chain", "kubeproxy.chain.damaged", []edit{before("^-A "+sepNP1+" .*DNAT", "-A "+sepNP1+" -j ACCEPT")}},
	{"DROP in KUBE-FORWARD", "kubeproxy.chain.damaged", []edit{before("^-A KUBE-FORWARD .*mark", "-A KUBE-FORWARD -j DROP")}},

	{"dispatch rule deleted", "kubeproxy.chain.damaged", []edit{del("^-A " + svcEX + " .*100.96.4.44")}},
	{"first dispatch rule deleted", "kubeproxy.chain.unreferenced", []edit{del("^-A " + svcEX + " .*100.96.1.41")}},
	{"probability changed", "kubeproxy.chain.damaged", []edit{sub("^-A "+svcEX+" .*100.96.4.44", "0.16666666651", "0.16700000000")}},
	{"probability with five digits", "kubeproxy.chain.damaged",
		[]edit{sub("^-A "+svcNP+" .*100.96.1.1:80", "0.33333333349", "0.33332999982")}},
	{"endpoint added manually", "kubeproxy.chain.damaged",
		[]edit{before("^-A "+svcNP+" .*0.33333333349", "-A "+svcNP+" -m statistic --mode random --probability 0.01000000000 -j "+sepEX1)}},
	{"last dispatch rule deleted", "kubeproxy.chain.damaged", []edit{del("^-A " + svcEX + " .*100.96.9.49")}},
	{"statistic match lost", "kubeproxy.chain.damaged",
		[]edit{sub("^-A "+svcNP+" .*100.96.1.2:80", "-m statistic --mode random --probability 0.50000000000 ", "")}},
	{"endpoint twice", "kubeproxy.chain.damaged",
		[]edit{before("^-A "+svcNP+" .*100.96.1.1:80", "-A "+svcNP+" -m statistic --mode random --probability 0.25000000000 -j "+sepNP1)}},
	{"service chain flushed", "kubeproxy.chain.damaged", []edit{delAll("^-A " + svcEX)}},
	{"condition added", "kubeproxy.chain.damaged",
		[]edit{sub("^-A "+svcNP+" .*100.96.1.2:80", "-A "+svcNP, "-A "+svcNP+" -s 10.0.0.0/8")}},
	{"marked too late", "kubeproxy.chain.damaged",
		[]edit{del("^-A " + svcNP + " .*MARK-MASQ"),
			after("^-A "+svcNP+" .*100.96.1.3",
				`-A `+svcNP+
					` ! -s 100.96.0.0/11 -d 10.104.34.55/32 -p tcp -m comment --comment "prod/np cluster IP" -m tcp --dport 80 -j KUBE-MARK-MASQ`)}},
	{"another service's endpoint", "kubeproxy.chain.damaged", []edit{sub("^-A "+svcNP+" .*100.96.1.2:80", sepNP2, sepEX1)}},

	{"DNAT to another address", "kubeproxy.chain.damaged", []edit{sub("^-A "+sepNP1+" .*DNAT", "100.96.1.1:80", "100.96.1.9:80")}},
	{"DNAT deleted", "kubeproxy.chain.damaged", []edit{del("^-A " + sepNP1 + " .*DNAT")}},
	{"DNAT with a condition", "kubeproxy.chain.damaged", []edit{sub("^-A "+sepNP1+" .*DNAT", "-m tcp", "-m tcp --dport 80")}},
	{"DNAT to another port", "kubeproxy.chain.damaged", []edit{sub("^-A "+sepNP1+" .*DNAT", "100.96.1.1:80", "100.96.1.1:81")}},
	{"endpoint moved as a whole", "kubeproxy.chain.damaged", []edit{subAll("^-A "+sepNP1, "100.96.1.1", "100.96.1.7")}},
	{"hairpin for another address", "kubeproxy.chain.damaged", []edit{sub("^-A "+sepNP1+" -s", "100.96.1.1/32", "100.96.1.8/32")}},
	{"hairpin negated", "kubeproxy.chain.damaged", []edit{sub("^-A "+sepNP1+" -s", "-s 100", "! -s 100")}},
	{"hairpin deleted", "kubeproxy.chain.damaged", []edit{del("^-A " + sepNP1 + " -s")}},
	{"endpoint chain flushed", "kubeproxy.chain.damaged", []edit{delAll("^-A " + sepNP1)}},
	{"endpoint rules swapped", "kubeproxy.chain.damaged",
		[]edit{del("^-A " + sepNP1 + " -s"), after("^-A "+sepNP1+" .*DNAT", "-A "+sepNP1+" -s 100.96.1.1/32 -j KUBE-MARK-MASQ")}},
	{"other protocol", "kubeproxy.chain.damaged", []edit{sub("^-A "+sepNP1+" .*DNAT", "tcp", "udp")}},
	{"unsupported revision", "kubeproxy.rule.unreadable",
		[]edit{subAll("^-A "+sepNP1+" .*DNAT", "DNAT --to-destination 100.96.1.1:80", "DNAT [unsupported revision]")}},
	{"unsupported revision everywhere", "kubeproxy.rule.unreadable",
		[]edit{subAll("^-A KUBE-SEP-.*DNAT", "--to-destination ", "--to-destination :0 persistent ")}},

	{"target of another service", "kubeproxy.chain.damaged", []edit{sub("^-A KUBE-SERVICES .*prod/export cluster IP", svcEX, svcNP)}},
	{"node port to another service", "kubeproxy.chain.damaged", []edit{sub("^-A KUBE-NODEPORTS -p tcp .*prod/np", extNP, extLB)}},
	{"ClusterIP differs", "kubeproxy.chain.damaged", []edit{sub("^-A "+svcNP+" .*MARK-MASQ", "10.104.34.55", "10.104.34.56")}},
	{"port differs", "kubeproxy.chain.damaged", []edit{sub("^-A KUBE-SERVICES .*prod/np cluster IP", "--dport 80", "--dport 81")}},
	{"destination missing", "kubeproxy.chain.damaged", []edit{sub("^-A KUBE-SERVICES .*prod/np cluster IP", "-d 10.104.34.55/32 ", "")}},
	{"one address, two services", "kubeproxy.service.duplicate", []edit{before("^-A KUBE-SERVICES .*nodeports",
		`-A KUBE-SERVICES -d 10.104.21.207/32 -p tcp -m comment --comment "prod/np cluster IP" -m tcp --dport 80 -j `+svcNP)}},
	{"rejected and dispatched", "kubeproxy.service.reject",
		[]edit{after("^-A KUBE-SERVICES .*prod/empty",
			`-A KUBE-SERVICES -d 10.104.34.55/32 -p tcp -m comment --comment "prod/np has no endpoints" -m tcp --dport 80 -j REJECT `+
				`--reject-with icmp-port-unreachable`)}},
	{"accepted, not rejected", "kubeproxy.service.reject",
		[]edit{sub("^-A KUBE-SERVICES .*prod/empty", "REJECT --reject-with icmp-port-unreachable", "ACCEPT")}},
	{"ClusterIP not masqueraded", "kubeproxy.chain.damaged", []edit{del("^-A " + svcNP + " .*MARK-MASQ")}},
	{"ClusterIP masqueraded for another range",
		"kubeproxy.chain.damaged", []edit{sub("^-A "+svcNP+" .*MARK-MASQ", "100.96.0.0/11", "100.96.0.0/16")}},
	{"KUBE-SERVICES flushed", "kubeproxy.chain.damaged", []edit{delAll("^-A KUBE-SERVICES .*(cluster IP|nodeports)")}},
	{"node ports before services", "kubeproxy.chain.damaged",
		[]edit{del("^-A KUBE-SERVICES .*nodeports"),
			before("^-A KUBE-SERVICES .*prod/np",
				`-A KUBE-SERVICES -m comment --comment "kubernetes service nodeports; NOTE: this must be the last rule in this chain" -m addrtype `+
					`--dst-type LOCAL -j KUBE-NODEPORTS`)}},
	{"node ports for any address", "kubeproxy.chain.damaged",
		[]edit{sub("^-A KUBE-SERVICES .*nodeports", "-m addrtype --dst-type LOCAL ", "")}},
	{"node port on localhost only", "kubeproxy.chain.damaged", []edit{del("^-A KUBE-NODEPORTS -p tcp .*prod/np")}},
	{"ClusterIP of a node port service deleted", "kubeproxy.chain.damaged", []edit{del("^-A KUBE-SERVICES .*prod/np cluster IP")}},
	{"POSTROUTING mark toggled twice", "kubeproxy.chain.damaged",
		[]edit{after("^-A KUBE-POSTROUTING .*MARK --set", "-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0")}},
	{"no jump to node ports: nodePortAddresses may ask for that", "", []edit{del("^-A KUBE-SERVICES .*nodeports")}},

	{"external not masqueraded", "kubeproxy.chain.damaged", []edit{del("^-A " + extNP + " .*MARK-MASQ")}},
	{"external chain leads nowhere", "kubeproxy.chain.damaged", []edit{del("^-A " + extNP + " -j KUBE-SVC")}},
	{"external leads to another service", "kubeproxy.chain.damaged", []edit{sub("^-A "+extNP+" -j KUBE-SVC", svcNP, svcEX)}},
	{"external flushed", "kubeproxy.chain.damaged", []edit{delAll("^-A " + extNP)}},
	{"external marked too late", "kubeproxy.chain.damaged",
		[]edit{del("^-A " + extNP + " .*MARK-MASQ"), after("^-A "+extNP+" -j KUBE-SVC", "-A "+extNP+" -j KUBE-MARK-MASQ")}},
	{"local: node not masqueraded", "kubeproxy.chain.damaged", []edit{del("^-A " + extLB + " .*MARK-MASQ")}},
	{"local: all masqueraded", "kubeproxy.chain.damaged", []edit{before("^-A "+extLB+" -s", "-A "+extLB+" -j KUBE-MARK-MASQ")}},
	{"local: node not routed", "kubeproxy.chain.damaged", []edit{del("^-A " + extLB + " .*route LOCAL")}},
	{"local: no local endpoints", "kubeproxy.chain.damaged", []edit{del("^-A " + extLB + " -j " + svlLB)}},
	{"local: pods not routed", "kubeproxy.chain.damaged", []edit{del("^-A " + extLB + " -s 100")}},
	{"local: out of order", "kubeproxy.chain.damaged",
		[]edit{del("^-A " + extLB + " -j " + svlLB), before("^-A "+extLB+" -s 100", "-A "+extLB+" -j "+svlLB)}},

	{"affinity rule deleted", "kubeproxy.affinity.set", []edit{del("^-A " + svcST + " .*rcheck.*-j " + sepST2)}},
	{"all affinity rules deleted", "kubeproxy.affinity.set", []edit{delAll("^-A " + svcST + " .*rcheck")}},
	{"affinity checks another list", "kubeproxy.affinity.set",
		[]edit{sub("^-A "+svcST+" .*rcheck.*-j "+sepST2, "--name "+sepST2, "--name "+sepST1)}},
	{"affinity timeouts differ", "kubeproxy.affinity.set", []edit{sub("^-A "+svcST+" .*rcheck.*-j "+sepST2, "10800", "600")}},
	{"affinity does not reap", "kubeproxy.affinity.set", []edit{sub("^-A "+svcST+" .*rcheck.*-j "+sepST2, "--reap ", "")}},
	{"clients not recorded", "kubeproxy.affinity.set",
		[]edit{sub("^-A "+sepST1+" .*DNAT", "-m recent --set --name "+sepST1+" --mask 255.255.255.255 --rsource ", "")}},
	{"affinity after dispatch", "kubeproxy.chain.damaged",
		[]edit{del("^-A " + svcST + " .*rcheck.*-j " + sepST2), after("^-A "+svcST+" .*statistic.*-j "+sepST1,
			"-A "+svcST+" -m recent --rcheck --seconds 10800 --reap --name "+sepST2+" --mask 255.255.255.255 --rsource -j "+sepST2)}},

	{"mark rule deleted", "kubeproxy.chain.damaged", []edit{del("^-A KUBE-MARK-MASQ")}},
	{"mark rule clears", "kubeproxy.chain.damaged", []edit{sub("^-A KUBE-MARK-MASQ", "0x4000/0x4000", "0x0/0x4000")}},
	{"another mark bit", "kubeproxy.chain.damaged", []edit{sub("^-A KUBE-MARK-MASQ", "0x4000/0x4000", "0x8000/0x8000")}},
	{"another bit in KUBE-FORWARD", "kubeproxy.chain.damaged",
		[]edit{sub("^-A KUBE-FORWARD .*mark", "0x4000/0x4000", "0x8000/0x8000")}},
	{"old POSTROUTING", "kubeproxy.masquerade.double-snat", []edit{delAll("^-A KUBE-POSTROUTING .*(RETURN|MARK --set)"),
		sub("^-A KUBE-POSTROUTING .*MASQUERADE", "-j MASQ", "-m mark --mark 0x4000/0x4000 -j MASQ")}},
	{"everything masqueraded", "kubeproxy.chain.damaged", []edit{del("^-A KUBE-POSTROUTING .*RETURN")}},
	{"mark not cleared", "kubeproxy.chain.damaged", []edit{del("^-A KUBE-POSTROUTING .*MARK --set")}},
	{"nothing masqueraded", "kubeproxy.chain.damaged", []edit{del("^-A KUBE-POSTROUTING .*MASQUERADE")}},
	{"ports not random", "kubeproxy.masquerade.random-fully", []edit{sub("^-A KUBE-POSTROUTING .*MASQUERADE", " --random-fully", "")}},

	{"INVALID not dropped", "kubeproxy.forward.be-liberal", []edit{del("^-A KUBE-FORWARD .*INVALID")}},
	{"INVALID dropped too late", "kubeproxy.chain.damaged",
		[]edit{del("^-A KUBE-FORWARD .*INVALID"), after("^-A KUBE-FORWARD .*ESTABLISHED",
			"-A KUBE-FORWARD -m conntrack --ctstate INVALID -m nfacct --nfacct-name  ct_state_invalid_dropped_pkts -j DROP")}},
	{"marked not accepted", "kubeproxy.chain.damaged", []edit{del("^-A KUBE-FORWARD .*mark")}},
	{"established not accepted", "kubeproxy.chain.damaged", []edit{del("^-A KUBE-FORWARD .*ESTABLISHED")}},
	{"bare DROP", "kubeproxy.firewall.bare-drop", []edit{before("^-A KUBE-FIREWALL", "-A KUBE-FIREWALL -j DROP")}},

	{"canary of nat missing", "kubeproxy.canary.missing", nil},
	{"filter missing", "kubeproxy.table.missing", nil},
	{"only nat saved", "kubeproxy.table.missing", nil},
	{"mangle missing", "kubeproxy.canary.missing", nil},
	{"nat flushed", "kubeproxy.table.flushed",
		[]edit{delAll("^-A (KUBE-(SE|SV|EXT|MARK|NODEPORTS .*prod/(np|lb-local)\" |POST)|PREROUTING|POSTROUTING|OUTPUT -m comment)")}},
	{"jump deleted: nat PREROUTING", "kubeproxy.jump.missing", []edit{del("^-A PREROUTING")}},
	{"jump deleted: nat OUTPUT", "kubeproxy.jump.missing", []edit{del("^-A OUTPUT -m comment")}},
	{"jump deleted: nat POSTROUTING", "kubeproxy.jump.missing", []edit{del("^-A POSTROUTING")}},
	{"jump deleted: INPUT nodeports", "kubeproxy.jump.missing", []edit{del("^-A INPUT .*KUBE-NODEPORTS")}},
	{"jump deleted: FORWARD", "kubeproxy.jump.missing", []edit{del("^-A FORWARD .*KUBE-FORWARD")}},
	{"jump deleted: FORWARD external", "kubeproxy.jump.missing", []edit{del("^-A FORWARD .*KUBE-EXTERNAL-SERVICES")}},
	{"jump deleted: OUTPUT services", "kubeproxy.jump.missing", []edit{del("^-A OUTPUT .*NEW.*KUBE-SERVICES")}},
	{"jump deleted: OUTPUT firewall", "kubeproxy.jump.missing", []edit{del("^-A OUTPUT .*KUBE-PROXY-FIREWALL")}},
	{"jump deleted: INPUT kubelet", "kubeproxy.jump.missing", []edit{del("^-A INPUT -j KUBE-FIREWALL")}},
}

func TestIptablesBreakages(t *testing.T) {
	text := readFile(t, "iptables-save.txt")
	for _, b := range iptablesBreakages {
		t.Run(b.name, func(t *testing.T) {
			var broken string
			switch b.name {
			case "filter missing":
				broken = cutTable(text, "filter")
			case "only nat saved":
				broken = tableText(text, "nat")
			case "mangle missing":
				broken = cutTable(text, "mangle")
			case "canary of nat missing":
				broken = cutTable(text, "nat")
				broken += editedSave(t, tableText(text, "nat"), del("^:KUBE-PROXY-CANARY"))
			default:
				broken = editedSave(t, text, b.edits...)
			}
			wantOne(t, Judge(mustParse(t, broken), Options{}), b.want)
		})
	}
}
