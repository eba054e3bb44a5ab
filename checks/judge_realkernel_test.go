package checks_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// obey does what a remedy of the form "run: sysctl -w KEY=VALUE ...; and more" says.
func obey(t *testing.T, h *host.Host, remedy string) {
	t.Helper()
	for line := range strings.SplitSeq(remedy, "; ") {
		arguments, ok := strings.CutPrefix(line, "run: sysctl -w ")
		if !ok {
			continue
		}
		arguments, _, _ = strings.Cut(arguments, ", and ")
		for _, assignment := range strings.Fields(arguments) {
			name, value, _ := strings.Cut(strings.Trim(assignment, "'"), "=")
			key, err := policy.ParseKey(name)
			if err != nil {
				t.Fatalf("remedy %q: %v", remedy, err)
			}
			if err := h.WriteSysctl(string(key), value); err != nil {
				t.Fatalf("remedy %q: %v", remedy, err)
			}
		}
	}
}

// TestRemediesInARealKernel breaks a network namespace, reads the remedy, does
// what it says, and looks again.
func TestRemediesInARealKernel(t *testing.T) {
	h := scratch(t)
	addLink(t, &netlink.Vxlan{LinkAttrs: netlink.LinkAttrs{Name: "flannel.1", MTU: 1450}, VxlanId: 1, Port: 8472})
	addLink(t, &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "lxc0a"}, PeerName: "eth0"})
	write := func(key, value string) {
		t.Helper()
		if err := h.WriteSysctl(key, value); err != nil {
			t.Skip("this kernel does not let it be broken: ", err)
		}
	}
	for _, c := range []struct {
		judgement string
		broken    [][2]string
		got       string
	}{
		{"rp-filter.effective", [][2]string{{"net/ipv4/conf/all/rp_filter", "1"}, {"net/ipv4/conf/flannel.1/rp_filter", "1"}, {"net/ipv4/conf/lxc0a/rp_filter", "0"}}, "flannel.1=1 lxc0a=1"},
		{"rp-filter.effective", [][2]string{{"net/ipv4/conf/all/rp_filter", "2"}, {"net/ipv4/conf/flannel.1/rp_filter", "1"}, {"net/ipv4/conf/lxc0a/rp_filter", "0"}}, "lxc0a=2"},
		{"nodeport.overlap", [][2]string{{"net/ipv4/ip_local_port_range", "20000 60999"}, {"net/ipv4/ip_local_reserved_ports", "6443,30000-30100"}}, "local ports 20000-60999, port 30101 not reserved"},
	} {
		// Not t.Run: that is another thread, in another namespace.
		for _, b := range c.broken {
			write(b[0], b[1])
		}
		list := checks.For(load(t, "check \""+c.judgement+"\" {}"), checks.Run)
		r := checks.Inspect(t.Context(), h, checks.Run, list).Results[0]
		if r.Verdict != checks.Warn || r.State.Got != c.got {
			t.Errorf("%s, broken: %s", c.judgement, said(r))
			continue
		}
		obey(t, h, r.State.Remedy)
		if r := checks.Inspect(t.Context(), h, checks.Run, list).Results[0]; r.Verdict != checks.Pass {
			t.Errorf("%s, after the remedy: %s", c.judgement, said(r))
		}
	}
}

// TestMartianRuleInARealKernel lets the real iptables print kubelet's rules.
func TestMartianRuleInARealKernel(t *testing.T) {
	h := scratch(t)
	iptables := func(arguments ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), "iptables", arguments...).CombinedOutput(); err != nil {
			t.Skipf("no iptables here: %v: %s", err, out)
		}
	}
	if err := h.WriteSysctl("net/ipv4/conf/all/route_localnet", "1"); err != nil {
		t.Skip("this kernel has no route_localnet: ", err)
	}
	list := checks.For(load(t, `check "route-localnet.martian" {}`), checks.Run)
	look := func(want checks.Verdict, got string) {
		t.Helper()
		r := checks.Inspect(t.Context(), h, checks.Run, list).Results[0]
		if r.Verdict != want || r.State.Got != got {
			t.Errorf("want %s, %s; got %s", want, got, said(r))
		}
	}
	iptables("-N", "KUBE-FIREWALL")
	look(checks.Warn, "route_localnet=1 without the KUBE-FIREWALL rule")
	iptables("-A", "KUBE-FIREWALL", "!", "-s", "127.0.0.0/8", "-d", "127.0.0.0/8", "-m", "comment", "--comment", "block incoming localnet connections",
		"-m", "conntrack", "!", "--ctstate", "RELATED,ESTABLISHED,DNAT", "-j", "DROP")
	look(checks.Warn, "the rule is in KUBE-FIREWALL, and INPUT does not jump there")
	iptables("-I", "INPUT", "-j", "KUBE-FIREWALL")
	look(checks.Pass, "martian packets dropped")
}

// TestNMCloudSetupRulesInARealKernel makes the rules as nm-cloud-setup does, in
// a namespace, and reads them through a recording too.
func TestNMCloudSetupRulesInARealKernel(t *testing.T) {
	h := scratch(t)
	list := checks.For(load(t, `check "nm-cloud-setup" {}`), checks.Run)
	judged := func(h *host.Host, want checks.Verdict, got string) {
		t.Helper()
		r := checks.Inspect(t.Context(), h, checks.Run, list).Results[0]
		if r.Verdict != want || r.State.Got != got {
			t.Errorf("want %s, %s; got %s", want, got, said(r))
		}
	}
	judged(h, checks.Pass, "off")
	addLink(t, &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "ens6"}, PeerName: "peer"})
	for _, command := range []string{
		"link set peer up", "link set ens6 up", "addr add 10.0.2.5/24 dev ens6",
		"route add 10.0.2.0/24 dev ens6 table 30201", "rule add priority 30201 from 10.0.2.5 table 30201",
		"rule add priority 30350 table main suppress_prefixlength 0",
		"route add default via 10.0.2.1 dev ens6 table 30401", "rule add priority 30401 from 10.0.2.5 table 30401",
	} {
		if out, err := exec.CommandContext(t.Context(), "ip", strings.Fields(command)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", command, err, out)
		}
	}
	recorded, snapshot := host.Record(h)
	judged(recorded, checks.Warn, "off, and its rules stand, to table 30201, 30401")
	rules, err := host.Replay(snapshot).Links.RoutingRules(t.Context())
	if err != nil || len(rules) != 2 || rules[0].Routes != 1 || rules[0].From != "10.0.2.5/32" {
		t.Errorf("recorded %+v, %v", rules, err)
	}
}
