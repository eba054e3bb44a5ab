package checks_test

import (
	"testing"

	"nodegate/checks"
	"nodegate/internal/host/hosttest"
)

func TestIptablesVersion(t *testing.T) {
	node := func(said string) *hosttest.Machine {
		return &hosttest.Machine{Version: map[string]string{"iptables": said}}
	}
	runJudged(t, []judgedCase{
		{what: "too old for kube-proxy", name: "iptables.version", node: node("iptables v1.6.1"), want: `
warn
want: at least 1.6.2
got: 1.6.1
evidence: iptables --version: iptables v1.6.1
remedy: install iptables 1.6.2 or later: this one has no --random-fully`},
		{what: "too old for -w", name: "iptables.version", stage: checks.Run, node: node("iptables v1.4.7"), want: `
warn
want: at least 1.6.2
got: 1.4.7
evidence: iptables --version: iptables v1.4.7
remedy: install iptables 1.6.2 or later: this one has neither -w (1.4.20) nor --random-fully (1.6.2)`},
		{what: "new", name: "iptables.version", node: node("iptables v1.8.9 (nf_tables)"), want: `
pass
want: at least 1.6.2
got: 1.8.9
evidence: iptables --version: iptables v1.8.9 (nf_tables)`},
		{what: "two numbers", name: "iptables.version", node: node("iptables v1.8 (legacy)"), want: `
pass
want: at least 1.6.2
got: 1.8.0
evidence: iptables --version: iptables v1.8 (legacy)`},
		{what: "not a version", name: "iptables.version", node: node("BusyBox"), want: `
unknown
error: cannot tell the version of iptables from "BusyBox"`},
		{what: "not installed", name: "iptables.version", node: &hosttest.Machine{}, want: `
skip
skip: iptables is not installed: kube-proxy brings its own`},
	})
	r := judgeOn(t.Context(), t, (&hosttest.Machine{Version: map[string]string{"iptables": "iptables v1.8.7 (nf_tables)"}}).Host(), checks.Run, "iptables.version", "")
	if r.Verdict != checks.Pass || len(r.State.Evidence) != 2 || r.State.Evidence[1].Source != "note" {
		t.Errorf("1.8.7 on nf_tables is not noted: %+v", r.State)
	}
}

func TestIptablesMark(t *testing.T) {
	const (
		name  = "iptables.mark-regression"
		tried = "ip6tables-nft -j MARK --set-xmark 0x4000/0x4000"
		lost  = "Warning: Extension MARK revision 0 not supported, missing kernel module?; ip6tables: No chain/target/match by that name."
		taken = "\npass\nwant: ip6tables takes MARK\ngot: ip6tables takes MARK\nevidence: "
	)
	node := func(kernel, os, save string) *hosttest.Machine {
		m := &hosttest.Machine{Kernel: kernel, Files: map[string]string{"/etc/os-release": "ID=" + os + "\n"},
			Rules: map[string]string{"iptables-nft-save": proxySave, "ip6tables-nft-save": save}}
		m.Sysctl("net/ipv6/conf/all/disable_ipv6", "0")
		return m
	}
	says := func(m *hosttest.Machine, refused string) *hosttest.Machine {
		m.Takes = map[string]string{tried: refused}
		return m
	}
	noIPv6 := node("6.6.58", "arch", "")
	delete(noIPv6.Files, "/proc/sys/net/ipv6/conf/all/disable_ipv6")
	noProxy := node("6.6.58", "arch", "")
	noProxy.Rules = map[string]string{"iptables-nft-save": "*filter\nCOMMIT\n"}
	runJudged(t, []judgedCase{
		{what: "refused, whatever the release", name: name, node: says(node("6.1.0-28-amd64", "debian", ""), lost), want: `
warn
want: ip6tables takes MARK
got: refused
evidence: scratch namespace: ip6tables-nft -t mangle -j MARK --set-xmark 0x4000/0x4000: ` + lost + `
remedy: install the next kernel, or the package that has its xt_mark module`},
		{what: "taken, whatever the release", name: name, node: says(node("6.6.58", "arch", ""), ""),
			want: taken + "scratch namespace: ip6tables-nft -t mangle -j MARK --set-xmark 0x4000/0x4000: taken"},
		{what: "a rule stands", name: name, node: node("6.6.58", "talos", proxySave), want: taken + "ip6tables-nft-save: -A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000"},
		{what: "cannot be tried, one of them", name: name, node: node("6.8.0-56-generic", "ubuntu", "*nat\n:KUBE-MARK-MASQ - [0:0]\nCOMMIT\n"), want: `
unknown
error: kernel 6.8.0-56-generic may refuse ip6tables' MARK (Ubuntu's 5.15.0-127, 6.8.0-56 and 6.8.0-57 lost it): ` + tried + `: not permitted`},
		{what: "cannot be tried, a cloud's kernel", name: name, node: node("6.8.0-1024-aws", "ubuntu", ""), want: `
unknown
error: kernel 6.8.0-1024-aws may refuse ip6tables' MARK (Ubuntu numbers this kernel apart from 5.15.0-127, 6.8.0-56 and 6.8.0-57, which lost it): ` + tried + `: not permitted`},
		{what: "cannot be tried, another kernel", name: name, node: node("6.1.0-28-amd64", "debian", ""), want: taken + "uname -r: 6.1.0-28-amd64: not one of those that lost it"},
		{what: "not tried without kube-proxy", name: name, node: says(noProxy, ""), want: `
unknown
error: kernel 6.6.58 may refuse ip6tables' MARK (stable kernels 6.6.57, 6.6.58, 6.11.4 and 6.11.5 lost it): kube-proxy keeps no iptables rules here, so it was not tried`},
		{what: "no IPv6", name: name, node: noIPv6, want: `
skip
skip: this kernel has no IPv6`},
	})
}

func TestDockerForwardDrop(t *testing.T) {
	const docker = `*filter
:INPUT ACCEPT [0:0]
:FORWARD DROP [0:0]
:OUTPUT ACCEPT [0:0]
:DOCKER - [0:0]
:DOCKER-FORWARD - [0:0]
:DOCKER-USER - [0:0]
:FLANNEL-FWD - [0:0]
:KUBE-FORWARD - [0:0]
-A FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
-A FORWARD -j DOCKER-USER
-A FORWARD -j DOCKER-FORWARD
-A DOCKER-FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A DOCKER-FORWARD -o docker0 -j DOCKER
-A DOCKER-FORWARD -i docker0 -j ACCEPT
-A DOCKER-FORWARD -i br-0123456789ab -j ACCEPT
-A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT
`
	node := func(more string) *hosttest.Machine {
		return &hosttest.Machine{Rules: map[string]string{"iptables-nft-save": docker + more + "COMMIT\n", "ip6tables-nft-save": docker + "COMMIT\n"}}
	}
	open := node("")
	open.Rules["iptables-nft-save"] = "*filter\n:FORWARD ACCEPT [0:0]\n:DOCKER - [0:0]\nCOMMIT\n*nat\n:FORWARD DROP [0:0]\nCOMMIT\n"
	runJudged(t, []judgedCase{
		{what: "closed", name: "docker.forward-drop", node: node(""), want: `
warn
want: FORWARD accepts Pods
got: FORWARD drops in iptables-nft-save
evidence: iptables-nft-save: :FORWARD DROP
remedy: run: iptables-nft -P FORWARD ACCEPT; and set net.ipv4.ip_forward=1 before Docker starts, or it closes FORWARD again`},
		{what: "flannel accepts", name: "docker.forward-drop", node: node("-A FORWARD -m comment --comment \"flanneld forward -j DROP\" -j FLANNEL-FWD\n-A FLANNEL-FWD -s 10.244.0.0/16 -j ACCEPT\n"), want: `
pass
want: FORWARD accepts Pods
got: FORWARD accepts Pods
evidence: iptables-nft-save: -A FLANNEL-FWD -s 10.244.0.0/16 -j ACCEPT`},
		{what: "not closed", name: "docker.forward-drop", node: open, want: `
pass
want: FORWARD accepts Pods
got: FORWARD accepts Pods
evidence: iptables-nft-save: :FORWARD ACCEPT`},
		{what: "no Docker", name: "docker.forward-drop", node: proxyNode(proxySave, ""), want: `
skip
skip: Docker has no rules here`},
	})
}
