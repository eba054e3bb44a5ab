package packetfilter_test

import (
	"os/exec"
	"testing"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/checks/checkstest"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
	"nodegate/internal/verdict"
)

func TestRouteLocalnetMartian(t *testing.T) {
	const drop = "-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment \"block incoming localnet connections\" -m " +
		"conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP\n"
	rules := func(on, text string) *hosttest.Machine {
		m := checkstest.Node(nil, map[string]string{"net/ipv4/conf/all/route_localnet": on})
		m.Rules = map[string]string{"iptables-nft-save": "*filter\n" + text + "COMMIT\n", "ip6tables-nft-save": "*filter\nCOMMIT\n"}
		return m
	}
	apart := rules("1", "-A INPUT -j KUBE-FIREWALL\n")
	apart.Rules["iptables-legacy-save"] = "*filter\n" + drop + "COMMIT\n"
	ipv6 := rules("1", "")
	ipv6.Rules["ip6tables-nft-save"] = "*filter\n-A INPUT -j KUBE-FIREWALL\n-A KUBE-FIREWALL ! -s ::1/128 -d ::1/128 -j DROP\nCOMMIT\n"
	checkstest.RunOne(t, "route-localnet.martian", checks.Run, []checkstest.Case{
		{What: "the jump is in another backend", Node: apart, Want: `warn
want: martian packets dropped
got: INPUT does not jump to the rule in KUBE-FIREWALL
evidence: /proc/sys/net/ipv4/conf/all/route_localnet: 1
evidence: iptables-legacy-save: ` + drop + `evidence: iptables-nft-save: -A INPUT -j KUBE-FIREWALL
remedy: restart kubelet to restore the jump from INPUT to KUBE-FIREWALL`},
		{What: "open", Node: rules("1", "-A INPUT -j KUBE-FIREWALL\n"), Want: `warn
want: martian packets dropped
got: route_localnet=1 without the KUBE-FIREWALL rule
evidence: /proc/sys/net/ipv4/conf/all/route_localnet: 1
evidence: iptables-nft-save: -A INPUT -j KUBE-FIREWALL
remedy: let kubelet create its rules (makeIPTablesUtilChains: true), or run kube-proxy with --iptables-localhost-nodeports=false and set route_localnet=0`},
		{What: "only IPv6 has the rules", Node: ipv6, Want: `warn
want: martian packets dropped
got: route_localnet=1 without the KUBE-FIREWALL rule
evidence: /proc/sys/net/ipv4/conf/all/route_localnet: 1
remedy: let kubelet create its rules (makeIPTablesUtilChains: true), or run kube-proxy with --iptables-localhost-nodeports=false and set route_localnet=0`},
		{What: "the jump is missing", Node: rules("1", drop), Want: `warn
want: martian packets dropped
got: INPUT does not jump to the rule in KUBE-FIREWALL
evidence: /proc/sys/net/ipv4/conf/all/route_localnet: 1
evidence: iptables-nft-save: ` + drop + `remedy: restart kubelet to restore the jump from INPUT to KUBE-FIREWALL`},
		{What: "closed", Node: rules("1", "-A INPUT -j KUBE-FIREWALL\n"+drop), Want: `
pass
want: martian packets dropped
got: martian packets dropped
evidence: /proc/sys/net/ipv4/conf/all/route_localnet: 1
evidence: iptables-nft-save: -A INPUT -j KUBE-FIREWALL
evidence: iptables-nft-save: -A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment "block incoming localnet connections" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP`},
		{What: "off", Node: rules("0", ""), Want: `
skipped
skipped: route_localnet is 0`},
	})
}

// TestMartianRuleInARealKernel reads kubelet's rules as the real iptables prints them.
func TestMartianRuleInARealKernel(t *testing.T) {
	h := checkstest.Scratch(t)
	hosttest.NeedProgram(t, "iptables")
	iptables := func(arguments ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), "iptables", arguments...).CombinedOutput(); err != nil {
			t.Fatalf("iptables: %v: %s", err, out)
		}
	}
	require.NoError(t, h.WriteSysctl("net/ipv4/conf/all/route_localnet", "1"))
	list := catalog.For(checkstest.Load(t, `check "route-localnet.martian" {}`), checks.Run)
	expect := func(want verdict.Verdict, got string) {
		t.Helper()
		r := checks.Inspect(t.Context(), h, checks.Run, list).Results[0]
		if r.Verdict != want || r.State.Got != got {
			t.Errorf("want %s, %s; got %s", want, got, checkstest.Text(r))
		}
	}
	iptables("-N", "KUBE-FIREWALL")
	expect(verdict.Warn, "route_localnet=1 without the KUBE-FIREWALL rule")
	iptables("-A", "KUBE-FIREWALL", "!", "-s", "127.0.0.0/8", "-d", "127.0.0.0/8", "-m", "comment", "--comment",
		"block incoming localnet connections",
		"-m", "conntrack", "!", "--ctstate", "RELATED,ESTABLISHED,DNAT", "-j", "DROP")
	expect(verdict.Warn, "INPUT does not jump to the rule in KUBE-FIREWALL")
	iptables("-I", "INPUT", "-j", "KUBE-FIREWALL")
	expect(verdict.Pass, "martian packets dropped")
}
