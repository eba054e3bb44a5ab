package packetfilter_test

import (
	"os/exec"
	"strings"
	"testing"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
	"nodegate/internal/verdict"
)

func TestIptablesMark(t *testing.T) {
	const (
		name     = "iptables.mark-regression"
		tried    = "ip6tables-nft -j MARK --set-xmark 0x4000/0x4000"
		lost     = "Warning: Extension MARK revision 0 not supported, missing kernel module?; ip6tables: No chain/target/match by that name."
		accepted = "\npass\nwant: ip6tables accepts MARK\ngot: ip6tables accepts MARK\nevidence: "
	)
	node := func(kernel, os, save string) *hosttest.Machine {
		m := &hosttest.Machine{Kernel: kernel, Files: map[string]string{"/etc/os-release": "ID=" + os + "\n"},
			Rules: map[string]string{"iptables-nft-save": checkstest.ProxySave, "ip6tables-nft-save": save}}
		m.Sysctl("net/ipv6/conf/all/disable_ipv6", "0")
		return m
	}
	rejects := func(m *hosttest.Machine, message string) *hosttest.Machine {
		m.Rejects = map[string]string{tried: message}
		return m
	}
	noIPv6 := node("6.6.58", "arch", "")
	delete(noIPv6.Files, "/proc/sys/net/ipv6/conf/all/disable_ipv6")
	noProxy := node("6.6.58", "arch", "")
	noProxy.Rules = map[string]string{"iptables-nft-save": "*filter\nCOMMIT\n"}
	checkstest.Run(t, []checkstest.Case{
		{What: "rejected, whatever the release", Problem: name, Node: rejects(node("6.1.0-28-amd64", "debian", ""), lost), Want: `
warn
want: ip6tables accepts MARK
got: rejected
evidence: scratch namespace: ip6tables-nft -t mangle -j MARK --set-xmark 0x4000/0x4000: ` + lost + `
remedy: install the next kernel, or the package that provides its xt_mark module`},
		{What: "accepted, whatever the release", Problem: name, Node: rejects(node("6.6.58", "arch", ""), ""),
			Want: accepted + "scratch namespace: ip6tables-nft -t mangle -j MARK --set-xmark 0x4000/0x4000: accepted"},
		{What: "a rule exists", Problem: name, Node: node("6.6.58", "talos", checkstest.ProxySave),
			Want: accepted + "ip6tables-nft-save: -A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000"},
		{What: "cannot be tried, an affected release", Problem: name,
			Node: node("6.8.0-56-generic", "ubuntu", "*nat\n:KUBE-MARK-MASQ - [0:0]\nCOMMIT\n"), Want: `
unknown
error: kernel 6.8.0-56-generic may reject ip6tables' MARK (Ubuntu's 5.15.0-127, 6.8.0-56 and 6.8.0-57 lost the target): ` + tried + `: not permitted`},
		{What: "cannot be tried, a cloud kernel", Problem: name, Node: node("6.8.0-1024-aws", "ubuntu", ""), Want: `
unknown
error: kernel 6.8.0-1024-aws may reject ip6tables' MARK (Ubuntu numbers this kernel separately from 5.15.0-127, 6.8.0-56 and 6.8.0-57, which lost the target): ` + tried + `: not permitted`},
		{What: "cannot be tried, another kernel", Problem: name, Node: node("6.1.0-28-amd64", "debian", ""),
			Want: accepted + "uname -r: 6.1.0-28-amd64: not a release that lost the target"},
		{What: "not tried without kube-proxy", Problem: name, Node: rejects(noProxy, ""), Want: `
unknown
error: kernel 6.6.58 may reject ip6tables' MARK (stable kernels 6.6.57, 6.6.58, 6.11.4 and 6.11.5 lost the target): not tried because kube-proxy has no iptables rules on this node`},
		{What: "no IPv6", Problem: name, Node: noIPv6, Want: `
skipped
skipped: this kernel does not support IPv6`},
	})
}

// TestMarkIsTriedInTheRealKernel tries the rule on a node where kube-proxy has rules for IPv4 and none for IPv6.
func TestMarkIsTriedInTheRealKernel(t *testing.T) {
	for _, program := range []string{"iptables-nft", "iptables-legacy"} {
		hosttest.NeedProgram(t, program)
		t.Run(program, func(t *testing.T) {
			if !hosttest.OwnNetns(t) { // a thread's own namespace is not enough: the check runs concurrently with others
				return
			}
			if out, err := exec.CommandContext(t.Context(), program, "-t", "nat", "-N", "KUBE-SERVICES").CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", program, err, out)
			}
			h, err := host.Open("/")
			require.NoError(t, err)
			h.Kernel = checkstest.Release{Kernel: h.Kernel, Released: "6.6.58"} // judged by its release alone, it would be unknown
			r := checkstest.On(t.Context(), t, h, checks.Run, "iptables.mark-regression", "")
			want := "ip6" + strings.TrimPrefix(program, "ip") + " -t mangle -j MARK --set-xmark 0x4000/0x4000: accepted"
			if r.Verdict != verdict.Pass || len(r.State.Evidence) != 1 || r.State.Evidence[0].Text != want {
				t.Errorf("%s: %s", program, checkstest.Text(r))
			}
		})
	}
}
