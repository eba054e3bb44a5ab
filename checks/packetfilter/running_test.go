package packetfilter_test

import (
	"os/exec"
	"strings"
	"testing"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

func saved(text string) *hosttest.Machine {
	return &hosttest.Machine{Rules: map[string]string{"iptables-nft-save": text + "COMMIT\n"}}
}

func TestMarkBits(t *testing.T) {
	const proxy = "*mangle\n:KUBE-MARK-MASQ - [0:0]\n:CNI-HOSTPORT-SETMARK - [0:0]\n:ts-forward - [0:0]\n:cali-PREROUTING - [0:0]\n" +
		"-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000\n-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x0\n" +
		"-A CNI-HOSTPORT-SETMARK -j MARK --set-xmark 0x2000/0x2000\n"
	checkstest.RunOne(t, "packetfilter.mark-bits", checks.Run, []checkstest.Case{
		{What: "kube-proxy and portmap", Node: saved(proxy), Want: `
pass
want: no shared bits
got: no shared bits
evidence: iptables-save: kube-proxy uses 0x4000
evidence: iptables-save: portmap uses 0x2000`},
		{What: "Calico and Tailscale", Node: saved(proxy + "-A ts-forward -i tailscale0 -j MARK --set-xmark 0x40000/0xff0000\n" +
			"-A cali-PREROUTING -m mark --mark 0x10000/0x10000 -j ACCEPT\n"), Want: `
warn
want: no shared bits
got: Calico and Tailscale share 0x10000
evidence: iptables-save: Calico uses 0x10000
evidence: iptables-save: Tailscale uses 0xff0000
evidence: iptables-save: kube-proxy uses 0x4000
evidence: iptables-save: portmap uses 0x2000
remedy: give one of them other bits: Calico's iptablesMarkMask (FelixConfiguration) or kube-proxy's iptables.masqueradeBit; Tailscale's bits are fixed`},
		{What: "kube-router and kube-proxy", Node: saved("*mangle\n:KUBE-MARK-MASQ - [0:0]\n:KUBE-ROUTER-INPUT - [0:0]\n" +
			":KUBE-POD-FW-X - [0:0]\n:KUBE-NWPLCY-X - [0:0]\n-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000\n" +
			"-A KUBE-ROUTER-INPUT -m mark --mark 0x20000/0x20000 -j ACCEPT\n-A KUBE-POD-FW-X -m mark ! --mark 0x10000/0x10000 -j DROP\n" +
			"-A KUBE-NWPLCY-X -j MARK --set-xmark 0x4000/0x4000\n"), Want: `
warn
want: no shared bits
got: kube-proxy and kube-router share 0x4000
evidence: iptables-save: kube-proxy uses 0x4000
evidence: iptables-save: kube-router uses 0x34000
remedy: give one of them other bits: Calico's iptablesMarkMask (FelixConfiguration) or kube-proxy's iptables.masqueradeBit; Tailscale's bits are fixed`},
		{What: "Cilium, which compares nearly the whole mark", Node: saved("*raw\n:KUBE-MARK-MASQ - [0:0]\n:CILIUM_OUTPUT_raw - [0:0]\n" +
			"-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000\n" +
			"-A CILIUM_OUTPUT_raw -o lxc+ -m mark --mark 0xa00/0xfffffeff -j CT --notrack\n"), Want: `
pass
want: no shared bits
got: no shared bits
evidence: iptables-save: Cilium uses 0xa00
evidence: iptables-save: kube-proxy uses 0x4000`},
		{What: "no marks", Node: saved("*mangle\n:PREROUTING ACCEPT [0:0]\n"), Want: "skipped\nskipped: at most one program uses marks"},
	})
}

func TestHostPort(t *testing.T) {
	const chains = "*nat\n:CNI-HOSTPORT-DNAT - [0:0]\n:KUBE-NODEPORTS - [0:0]\n:CNI-DN-1 - [0:0]\n:KUBE-EXT-1 - [0:0]\n" +
		"-A KUBE-NODEPORTS -p tcp -m comment --comment \"ns/name\" -m tcp --dport 30080 -j KUBE-EXT-1\n"
	rule := func(protocol, ports string) string {
		return "-A CNI-HOSTPORT-DNAT -p " + protocol + " -m comment --comment \"dnat name: \\\"cbr0\\\" id: \\\"1\\\"\" -m multiport --dports " +
			ports + " -j CNI-DN-1\n"
	}
	checkstest.RunOne(t, "packetfilter.host-port", checks.Run, []checkstest.Case{
		{What: "ports of kubelet and a NodePort", Node: saved(chains + rule("tcp", "8080,10250") + rule("tcp", "30080") + rule("udp", "22")), Want: `
warn
want: no shared ports
got: port 10250 of kubelet, port 30080 of a NodePort
evidence: iptables-nft-save: -A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \"cbr0\" id: \"1\"" -m multiport --dports 8080,10250 -j CNI-DN-1
evidence: iptables-nft-save: -A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \"cbr0\" id: \"1\"" -m multiport --dports 30080 -j CNI-DN-1
remedy: give the Pod another hostPort or remove it: a Service of type NodePort does not need one`},
		{What: "two Pods", Node: saved(chains + ":CNI-DN-2 - [0:0]\n:CNI-DN-3 - [0:0]\n" + strings.ReplaceAll(rule("tcp", "80"), "DN-1", "DN-3") + rule("tcp", "80") +
			strings.ReplaceAll(rule("tcp", "80"), "DN-1", "DN-2") + "-A CNI-DN-1 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.244.0.5:8080\n" +
			"-A CNI-DN-2 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.244.0.9:8080\n" +
			"-A CNI-DN-3 -d 192.0.2.1/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.244.0.7:8080\n"), Want: `
warn
want: no shared ports
got: hostPort 80/tcp: 10.244.0.5:8080 gets all packets, 10.244.0.9:8080 none
evidence: iptables-nft-save: -A CNI-DN-1 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.244.0.5:8080
evidence: iptables-nft-save: -A CNI-DN-2 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.244.0.9:8080
remedy: if the first Pod is gone, delete its rules: ` + "`iptables -t nat -D CNI-HOSTPORT-DNAT` with the words of the first rule, then " +
			"`iptables -t nat -F` and `-X` with its chain; if both Pods run, give one another hostPort"},
		{What: "no shared port", Node: saved(chains + rule("tcp", "80,443")), Want: "pass\nwant: no shared ports\ngot: no shared ports"},
		{What: "no hostPort", Node: saved(chains), Want: "skipped\nskipped: no Pod uses a hostPort through portmap"},
	})
}

func TestForwardDrop(t *testing.T) {
	filter := func(policy, rules string) string {
		return "*raw\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -d 172.17.0.2/32 ! -i docker0 -j DROP\nCOMMIT\n*filter\n:FORWARD " + policy +
			" [0:0]\n:KUBE-FORWARD - [0:0]\n:FLANNEL-FWD - [0:0]\n:ufw-forward - [0:0]\n-A FLANNEL-FWD -s 10.244.0.0/16 -j ACCEPT\n" +
			"-A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT\n-A ufw-forward -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n" + rules
	}
	const remedy = "\nremedy: put the CNI's ACCEPT first: restart its agent, which inserts it; with ufw, run `ufw default allow routed`; " +
		"in a table of nft, let the Pods' links pass or give the chain policy accept"
	const right = "pass\nwant: Pod traffic passes\ngot: Pod traffic passes"
	const kube, flannel, reject = "-A FORWARD -j KUBE-FORWARD\n", "-A FORWARD -j FLANNEL-FWD\n",
		"-A FORWARD -j REJECT --reject-with icmp-host-prohibited\n"
	closedIPv6 := func(nat string) *hosttest.Machine {
		m := saved(filter("ACCEPT", kube))
		m.Rules["ip6tables-nft-save"] = nat + "*filter\n:FORWARD DROP [0:0]\n:KUBE-FORWARD - [0:0]\nCOMMIT\n"
		return m
	}
	checkstest.RunOne(t, "packetfilter.forward-drop", checks.Run, []checkstest.Case{
		{What: "healthy", Node: saved(filter("ACCEPT", kube)), Want: right},
		{What: "flannel before the REJECT of Enterprise Linux", Node: saved(filter("DROP", kube+flannel+reject)), Want: right},
		{What: "flannel after it", Node: saved(filter("ACCEPT", kube+reject+flannel)), Want: `
warn
want: Pod traffic passes
got: filter FORWARD drops in iptables-nft
evidence: iptables-nft-save: -A FORWARD -j REJECT --reject-with icmp-host-prohibited` + remedy},
		{What: "ufw", Node: saved(filter("DROP", kube+"-A FORWARD -j ufw-forward\n")), Want: `
warn
want: Pod traffic passes
got: filter FORWARD drops in iptables-nft
evidence: iptables-nft-save: :FORWARD DROP` + remedy},
		{What: "ufw with ICMP accepted", Node: saved(filter("DROP", kube+"-A FORWARD -p icmp -j ACCEPT\n-A FORWARD -j ufw-forward\n")), Want: `
warn
want: Pod traffic passes
got: filter FORWARD drops in iptables-nft
evidence: iptables-nft-save: :FORWARD DROP` + remedy},
		{What: "a few packets of TCP", Node: saved(filter("ACCEPT", kube+"-A FORWARD -p tcp -m statistic --mode random --probability 0.01 -j DROP\n")), Want: `
warn
want: Pod traffic passes
got: filter FORWARD drops 1 % of TCP in iptables-nft
evidence: iptables-nft-save: -A FORWARD -p tcp -m statistic --mode random --probability 0.01 -j DROP` + remedy},
		{What: "IPv6 without Services", Node: closedIPv6(""), Want: right},
		{What: "IPv6 with Services", Node: closedIPv6("*nat\n:KUBE-SVC-X - [0:0]\nCOMMIT\n"), Want: `
warn
want: Pod traffic passes
got: filter FORWARD drops in ip6tables-nft
evidence: ip6tables-nft-save: :FORWARD DROP` + remedy},
		{What: "a DROP in raw", Node: saved("*raw\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -j DROP\nCOMMIT\n" +
			filter("ACCEPT", kube)[len("*raw\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -d 172.17.0.2/32 ! -i docker0 -j DROP\nCOMMIT\n"):]), Want: `
warn
want: Pod traffic passes
got: raw PREROUTING drops in iptables-nft
evidence: iptables-nft-save: -A PREROUTING -j DROP` + remedy},
		{What: "a REJECT before Docker's chains", Node: saved(filter("DROP", kube+reject+flannel+"-A FORWARD -j DOCKER\n-A DOCKER -i docker0 -j ACCEPT\n")), Want: `
warn
want: Pod traffic passes
got: filter FORWARD drops in iptables-nft
evidence: iptables-nft-save: -A FORWARD -j REJECT --reject-with icmp-host-prohibited` + remedy},
		{What: "a DROP of the Pods' link in mangle", Node: saved("*mangle\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -i cni0 -j DROP\nCOMMIT\n" +
			filter("ACCEPT", kube)), Want: `
warn
want: Pod traffic passes
got: mangle PREROUTING drops in iptables-nft
evidence: iptables-nft-save: -A PREROUTING -i cni0 -j DROP` + remedy},
		{What: "no kube-proxy", Node: saved("*filter\n:FORWARD DROP [0:0]\n"), Want: "skipped\nskipped: no kube-proxy rules found"},
	})
}

// TestNFTForwardDrop tests base chains of nft on this kernel.
func TestNFTForwardDrop(t *testing.T) {
	h := checkstest.Scratch(t)
	hosttest.NeedProgram(t, "nft")
	nft := func(text string) {
		t.Helper()
		cmd := exec.Command("nft", "-f", "-")
		cmd.Stdin = strings.NewReader("flush ruleset\ntable ip kube-proxy { chain c {\n}\n}\n" + text)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("nft: %v: %s", err, out)
		}
	}
	forward := func(policy, rules string) string {
		return "table inet mine { chain pods {\naccept\n}\nchain forward { type filter hook forward priority 0; policy " + policy + ";\n" +
			rules + "\n}\n}\n"
	}
	for what, c := range map[string]struct{ rules, want string }{
		"Debian's example":                      {forward("drop", ""), "inet mine forward: policy drop"},
		"only established connections accepted": {forward("drop", "ct state established,related accept"), "inet mine forward: policy drop"},
		"counted, then dropped":                 {forward("accept", "counter log\ncounter drop"), "inet mine forward: drop"},
		"refused":                               {forward("accept", "tcp dport 22 accept; reject with icmpx type admin-prohibited"), ""},
		"refused at once": {forward("accept", "ct state related accept; reject with icmpx type admin-prohibited"),
			"inet mine forward: reject"},
		"the Pods' link passes":    {forward("drop", `iifname "cni0" accept`), ""},
		"followed elsewhere":       {forward("drop", "jump pods"), ""},
		"a map of verdicts":        {forward("drop", "ct state vmap { established : accept, new : jump pods }"), ""},
		"invalid packets dropped":  {forward("accept", "ct state invalid drop"), ""},
		"new connections accepted": {forward("drop", "ct state established,new accept"), ""},
		"a mark of the connection": {forward("drop", "ct mark and 0x1 == 0x1 accept"), ""},
		"everything returns":       {forward("accept", "return; drop"), ""},
		"another hook":             {"table ip mine { chain input { type filter hook input priority 0; policy drop;\n}\n}\n", ""},
		"a table of iptables-nft":  {"table ip filter { chain FORWARD { type filter hook forward priority 0; policy drop;\n}\n}\n", ""},
		"a chain for IPv6": {"table ip6 mine { chain f { type filter hook forward priority 0; policy drop;\n}\n}\n",
			"ip6 mine f: policy drop"},
	} {
		nft(c.rules)
		others, err := h.Rules.Others(t.Context())
		require.NoError(t, err)
		assert.Equal(t, strings.Join(others.Drops, "; "), c.want, "%s", what)
	}
	nft(forward("drop", ""))
	r := checkstest.On(t.Context(), t, h, checks.Run, "packetfilter.forward-drop", "")
	if r.Err != nil || r.Verdict.String() != "warn" || r.State.Got != "inet mine forward drops" {
		t.Errorf("%s: %q, %v", r.Verdict, r.State.Got, r.Err)
	}
	for hook, want := range map[string]string{"prerouting": "warn", "postrouting": "warn", "output": "pass", "input": "pass"} {
		nft("table inet mine { chain pods { counter drop\n}\nchain c { type filter hook " + hook + " priority -5;\nct state new jump pods\n}\n}\n")
		r := checkstest.On(t.Context(), t, h, checks.Run, "packetfilter.forward-drop", "")
		if got := strings.TrimPrefix(r.State.Got, "Pod traffic passes"); r.Verdict.String() != want || got != "" && got != "inet mine pods drops, inet mine pods drops" && got != "inet mine pods drops" {
			t.Errorf("hook %s: %s: %q, %v", hook, r.Verdict, r.State.Got, r.Err)
		}
	}
	nft("table inet mine { chain c { type filter hook prerouting priority -5;\nlimit rate over 10/second drop\n}\n}\n")
	if r := checkstest.On(t.Context(), t, h, checks.Run, "packetfilter.forward-drop", ""); r.Verdict.String() != "pass" {
		t.Errorf("a rate limit: %s: %q, %v", r.Verdict, r.State.Got, r.Err)
	}
}

// TestIncompatible adds a rule that only nft can express to a table of this kernel's iptables-nft.
func TestIncompatible(t *testing.T) {
	h := checkstest.Scratch(t)
	hosttest.NeedProgram(t, "nft")
	hosttest.NeedProgram(t, "iptables-nft")
	run := func(command string) {
		t.Helper()
		if out, err := exec.Command("sh", "-ec", command).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
	}
	expect := func(check, want string) {
		t.Helper()
		r := checkstest.On(t.Context(), t, h, checks.Run, check, "")
		if r.Verdict.String() != want {
			t.Errorf("%s is %s (%v), want %s", check, r.Verdict, r.Err, want)
		}
	}
	run("iptables-nft -A FORWARD -j ACCEPT; iptables-nft -t nat -N KUBE-SERVICES")
	expect("packetfilter.incompatible", "pass")
	expect("packetfilter.mark-bits", "skipped")
	run("nft add rule ip filter FORWARD ct count 3 accept")
	expect("packetfilter.incompatible", "warn")
	expect("packetfilter.mark-bits", "unknown")
	run("nft flush chain ip filter FORWARD")
	expect("packetfilter.incompatible", "pass")
}
