package conntrack_test

import (
	"testing"

	"nodegate/checks/checkstest"
)

func TestInvalidPackets(t *testing.T) {
	withoutDrop, late := checkstest.Changed(t, checkstest.DropInvalid, ""),
		checkstest.Changed(t, checkstest.DropInvalid, "", checkstest.AcceptMark, checkstest.AcceptMark+checkstest.DropInvalid)
	foreign := checkstest.Changed(t, checkstest.DropInvalid, "-A KUBE-FORWARD -j RETURN\n"+checkstest.DropInvalid)
	gone := checkstest.Changed(t, checkstest.DropInvalid, "", checkstest.AcceptMark, "", ":KUBE-FORWARD - [0:0]\n", "",
		"-A FORWARD -m comment --comment \"kubernetes forwarding rules\" -j KUBE-FORWARD\n", "",
		"-A KUBE-FORWARD -m comment --comment \"kubernetes forwarding conntrack rule\" -m conntrack --ctstate RELATED,ESTABLISHED -j "+
			"ACCEPT\n", "")
	notReached := checkstest.Changed(t, "-A FORWARD -m comment --comment \"kubernetes forwarding rules\" -j KUBE-FORWARD\n", "")
	const toForward = "-A FORWARD -m comment --comment \"kubernetes forwarding rules\" -j KUBE-FORWARD\n"
	bypassed := checkstest.Changed(t, toForward, "-A FORWARD -j ACCEPT\n"+toForward)
	const changedName = "conntrack.be-liberal-changed"
	checkstest.Run(t, []checkstest.Case{
		{What: "DROP left out", Problem: "conntrack.invalid", Node: checkstest.ProxyNode(withoutDrop, "0"),
			Policy: `check "conntrack.be-liberal-changed" {}`, Want: `
fail
want: be_liberal=1, or INVALID dropped
got: be_liberal=0, no DROP of INVALID
because: conntrack.be-liberal-changed
evidence: /proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal: 0
evidence: iptables filter KUBE-FORWARD: KUBE-FORWARD does not drop INVALID packets, and nf_conntrack_tcp_be_liberal is 0` + "\nremedy: run `sysctl -w net.netfilter.nf_conntrack_tcp_be_liberal=1` and add the sysctl to the policy"},
		{What: "DROP too late", Problem: "conntrack.invalid", Node: checkstest.ProxyNode(late, "0"), Want: `
fail
want: be_liberal=1, or INVALID dropped
got: be_liberal=0, DROP of INVALID after an ACCEPT
evidence: /proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal: 0
evidence: iptables filter KUBE-FORWARD: -A KUBE-FORWARD -m conntrack --ctstate INVALID -m nfacct --nfacct-name  ct_state_invalid_dropped_pkts -j DROP: the ACCEPT in line 28 comes first and accepts INVALID packets` + "\nremedy: run `sysctl -w net.netfilter.nf_conntrack_tcp_be_liberal=1` and add the sysctl to the policy"},
		{What: "be_liberal", Problem: "conntrack.invalid", Node: checkstest.ProxyNode(withoutDrop, "1"), Want: `
pass
want: be_liberal=1, or INVALID dropped
got: be_liberal=1
evidence: /proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal: 1`},
		{What: "DROP", Problem: "conntrack.invalid", Node: checkstest.ProxyNode(checkstest.ProxySave, "0"), Want: `
pass
want: be_liberal=1, or INVALID dropped
got: INVALID dropped
evidence: /proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal: 0
evidence: iptables-nft-save: -A KUBE-FORWARD -m conntrack --ctstate INVALID -m nfacct --nfacct-name  ct_state_invalid_dropped_pkts -j DROP`},
		{What: "a foreign rule before it", Problem: "conntrack.invalid", Node: checkstest.ProxyNode(foreign, "0"), Want: `
unknown
error: cannot judge KUBE-FORWARD: kube-proxy does not write this into KUBE-FORWARD: -A KUBE-FORWARD -j RETURN`},
		{What: "KUBE-FORWARD missing", Problem: "conntrack.invalid", Node: checkstest.ProxyNode(gone, "0"), Want: `
unknown
error: cannot read KUBE-FORWARD: table filter has no kube-proxy rules, but other tables do; kube-proxy repairs a flush that keeps the canary chain only at its next full sync (1 h)`},
		{What: "KUBE-FORWARD not reached", Problem: "conntrack.invalid", Node: checkstest.ProxyNode(notReached, "0"), Want: `
fail
want: be_liberal=1, or INVALID dropped
got: be_liberal=0, KUBE-FORWARD not reached
evidence: /proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal: 0
evidence: iptables filter FORWARD: FORWARD has no jump to KUBE-FORWARD that matches every packet` + "\nremedy: run `sysctl -w net.netfilter.nf_conntrack_tcp_be_liberal=1` and add the sysctl to the policy"},
		{What: "KUBE-FORWARD bypassed", Problem: "conntrack.invalid", Node: checkstest.ProxyNode(bypassed, "0"), Want: `
fail
want: be_liberal=1, or INVALID dropped
got: be_liberal=0, KUBE-FORWARD not reached
evidence: /proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal: 0
evidence: iptables-nft-save: -A FORWARD -j ACCEPT: accepts every packet before KUBE-FORWARD` + "\nremedy: run `sysctl -w net.netfilter.nf_conntrack_tcp_be_liberal=1` and add the sysctl to the policy"},
		{What: "no kube-proxy", Problem: "conntrack.invalid", Node: checkstest.ProxyNode("", "0"), Want: `
skipped
skipped: no kube-proxy rules found`},
		{What: "no conntrack", Problem: "conntrack.invalid", Node: checkstest.ProxyNode(checkstest.ProxySave, ""), Want: `
skipped
skipped: nf_conntrack is not loaded: nothing is tracked`},
		{What: "changed", Problem: changedName, Node: checkstest.ProxyNode(withoutDrop, "0"), Want: `
fail
want: be_liberal unchanged since kube-proxy started
got: be_liberal=0 now, not 0 when kube-proxy started
evidence: /proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal: 0
evidence: iptables filter KUBE-FORWARD: KUBE-FORWARD does not drop INVALID packets, and nf_conntrack_tcp_be_liberal is 0` + "\nremedy: run `sysctl -w net.netfilter.nf_conntrack_tcp_be_liberal=1`, or keep 0 and restart kube-proxy: `kubectl -n kube-system delete pod -l k8s-app=kube-proxy --field-selector spec.nodeName=NODE`"},
		{What: "not changed", Problem: changedName, Node: checkstest.ProxyNode(withoutDrop, "1"), Want: `
pass
want: be_liberal unchanged since kube-proxy started
got: be_liberal unchanged since kube-proxy started
evidence: /proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal: 1`},
		{What: "DROP written", Problem: changedName, Node: checkstest.ProxyNode(checkstest.ProxySave, "0"), Want: `
pass
want: be_liberal unchanged since kube-proxy started
got: be_liberal unchanged since kube-proxy started
evidence: /proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal: 0`},
		{What: "no kube-proxy", Problem: changedName, Node: checkstest.ProxyNode("", "0"), Want: `
skipped
skipped: no kube-proxy rules found`},
	})
}
