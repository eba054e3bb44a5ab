package packetfilter_test

import (
	"os/exec"
	"strings"
	"testing"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/verdict"
)

func TestIptablesMark(t *testing.T) {
	const (
		name  = "iptables.mark-regression"
		tried = "ip6tables-nft -j MARK --set-xmark 0x4000/0x4000"
		lost  = "Warning: Extension MARK revision 0 not supported, missing kernel module?; ip6tables: No chain/target/match by that name."
		taken = "\npass\nwant: ip6tables takes MARK\ngot: ip6tables takes MARK\nevidence: "
	)
	node := func(kernel, os, save string) *hosttest.Machine {
		m := &hosttest.Machine{Kernel: kernel, Files: map[string]string{"/etc/os-release": "ID=" + os + "\n"},
			Rules: map[string]string{"iptables-nft-save": checkstest.ProxySave, "ip6tables-nft-save": save}}
		m.Sysctl("net/ipv6/conf/all/disable_ipv6", "0")
		return m
	}
	says := func(m *hosttest.Machine, refused string) *hosttest.Machine {
		m.Rejects = map[string]string{tried: refused}
		return m
	}
	noIPv6 := node("6.6.58", "arch", "")
	delete(noIPv6.Files, "/proc/sys/net/ipv6/conf/all/disable_ipv6")
	noProxy := node("6.6.58", "arch", "")
	noProxy.Rules = map[string]string{"iptables-nft-save": "*filter\nCOMMIT\n"}
	checkstest.Run(t, []checkstest.Case{
		{What: "refused, whatever the release", Problem: name, Node: says(node("6.1.0-28-amd64", "debian", ""), lost), Want: `
warn
want: ip6tables takes MARK
got: refused
evidence: scratch namespace: ip6tables-nft -t mangle -j MARK --set-xmark 0x4000/0x4000: ` + lost + `
remedy: install the next kernel, or the package that has its xt_mark module`},
		{What: "taken, whatever the release", Problem: name, Node: says(node("6.6.58", "arch", ""), ""),
			Want: taken + "scratch namespace: ip6tables-nft -t mangle -j MARK --set-xmark 0x4000/0x4000: taken"},
		{What: "a rule stands", Problem: name, Node: node("6.6.58", "talos", checkstest.ProxySave),
			Want: taken + "ip6tables-nft-save: -A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000"},
		{What: "cannot be tried, one of them", Problem: name,
			Node: node("6.8.0-56-generic", "ubuntu", "*nat\n:KUBE-MARK-MASQ - [0:0]\nCOMMIT\n"), Want: `
unknown
error: kernel 6.8.0-56-generic may refuse ip6tables' MARK (Ubuntu's 5.15.0-127, 6.8.0-56 and 6.8.0-57 lost it): ` + tried + `: not permitted`},
		{What: "cannot be tried, a cloud's kernel", Problem: name, Node: node("6.8.0-1024-aws", "ubuntu", ""), Want: `
unknown
error: kernel 6.8.0-1024-aws may refuse ip6tables' MARK (Ubuntu numbers this kernel apart from 5.15.0-127, 6.8.0-56 and 6.8.0-57, which lost it): ` + tried + `: not permitted`},
		{What: "cannot be tried, another kernel", Problem: name, Node: node("6.1.0-28-amd64", "debian", ""),
			Want: taken + "uname -r: 6.1.0-28-amd64: not one of those that lost it"},
		{What: "not tried without kube-proxy", Problem: name, Node: says(noProxy, ""), Want: `
unknown
error: kernel 6.6.58 may refuse ip6tables' MARK (stable kernels 6.6.57, 6.6.58, 6.11.4 and 6.11.5 lost it): kube-proxy keeps no iptables rules here, so it was not tried`},
		{What: "no IPv6", Problem: name, Node: noIPv6, Want: `
skipped
skipped: this kernel has no IPv6`},
	})
}

// TestMarkIsTriedInTheRealKernel: kube-proxy's IPv4 rules stand, none for IPv6.
func TestMarkIsTriedInTheRealKernel(t *testing.T) {
	for _, program := range []string{"iptables-nft", "iptables-legacy"} {
		hosttest.NeedProgram(t, program)
		t.Run(program, func(t *testing.T) {
			if !hosttest.OwnNetns(t) { // a thread's would not do: the check runs beside the others
				return
			}
			if out, err := exec.CommandContext(t.Context(), program, "-t", "nat", "-N", "KUBE-SERVICES").CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", program, err, out)
			}
			h, err := host.Open("/")
			if err != nil {
				t.Fatal(err)
			}
			h.Kernel = checkstest.Release{Kernel: h.Kernel, Released: "6.6.58"} // by its release alone it would be unknown
			r := checkstest.On(t.Context(), t, h, checks.Run, "iptables.mark-regression", "")
			want := "ip6" + strings.TrimPrefix(program, "ip") + " -t mangle -j MARK --set-xmark 0x4000/0x4000: taken"
			if r.Verdict != verdict.Pass || len(r.State.Evidence) != 1 || r.State.Evidence[0].Text != want {
				t.Errorf("%s: %s", program, checkstest.Text(r))
			}
		})
	}
}
