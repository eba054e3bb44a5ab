package packetfilter_test

import (
	"os/exec"
	"strings"
	"testing"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
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
		assert.True(t, r.Verdict.String() == want, "%s is %s (%v), want %s", check, r.Verdict, r.Err, want)
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
