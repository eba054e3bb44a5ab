package policy_test

import (
	"strings"
	"testing"

	"nodegate/policy"
)

// TestAbsentButNeeded lints modules that must not load although something needs them, and options that a module cannot have.
func TestAbsentButNeeded(t *testing.T) {
	absent := func(names ...string) string {
		text := ""
		for _, n := range names {
			text += "module \"" + n + "\" {\n  absent = true\n}\n"
		}
		return text
	}
	for _, c := range []struct{ text, want string }{
		{`use "kubernetes" {}` + "\n" + absent("bridge"),
			"Contradiction; Module bridge must not load, but module br_netfilter at builtin:kubernetes"},
		{absent("llc") + `module "br_netfilter" {}`, "module br_netfilter"},
		{absent("ip_vs") + `module "ip_vs_rr" {}`, "module ip_vs_rr"},
		{absent("nf_conntrack") + `module "ip_vs" {}`, "module ip_vs at"},
		{absent("nf_tables") + `module "nft_chain_nat" {}`, "module nft_chain_nat"},
		{absent("udp_tunnel") + `module "vxlan" {}`, "module vxlan"},
		{absent("vxlan") + "link \"v\" {\n  match { kind = \"vxlan\" }\n  mtu = 1400\n}", "links of kind vxlan"},
		{`use "kube-proxy-iptables" {}` + "\n" + absent("xt_conntrack"), "Contradiction; Module xt_conntrack must not load, but kube-proxy"},
		{`use "kubernetes" {}` + "\n" + absent("xt_conntrack"), "Needed by kube-proxy; "},
		{`use "kubernetes" {}` + "\n" + absent("ip_tables"), "Needed by kube-proxy; "},
		{`use "kubernetes" {}` + "\n" + absent("veth"), "Needed by Pods; "},
		{`use "kube-proxy-nftables" {}` + "\n" + absent("ip_tables", "xt_conntrack"), ""},
		{`use "kubernetes" {}` + "\n" + absent("dccp", "vxlan", "usb-storage"), ""},
		{`module "ip_vs" {}` + "\n" + absent("ip_vs_lblc"), ""},
		{`module "nf_conntrack" { options = { hashsize = 100000 } }`, "Rounded by the kernel; hashsize = 100000: stored as 100352 by Linux "},
		{`module "nf_conntrack" { options = { hashsize = 131072, acct = true, tstamp = "N" } }`, ""},
		{`module "nf_conntrack" { options = { hashsize = 0 } }`, "at least 1"},
		{`module "nf_conntrack" { options = { acct = 5 } }`, "takes true or false"},
		{`module "nf_conntrack" { options = { hash_size = 65536 } }`, "Unknown parameter; nf_conntrack has no parameter \"hash_size\""},
		{`module "nf_conntrack" { options = { hashsize = max(65536, node.cpus * 1000) } }`, "This happens on a node with 96 CPUs."},
	} {
		diags := policy.Lint([]policy.File{{Name: "test.hcl", Text: []byte(c.text)}}, known())
		var all []string
		for _, d := range diags {
			if !strings.Contains(d.Detail+d.Summary, "reason") {
				all = append(all, d.Summary+"; "+d.Detail)
			}
		}
		got := strings.Join(all, "\n")
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s\n%s\nwant %s", c.text, got, c.want)
		}
	}
}
