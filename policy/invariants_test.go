package policy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"

	"nodegate/policy"
)

// TestInvariants: Lint reports values of parameters that belong together and do not fit.
func TestInvariants(t *testing.T) {
	set := func(key, value string) string { return fmt.Sprintf("sysctl %q {\n  %s\n}\n", key, value) }
	thresh := func(family string, n int, value string) string {
		return set(fmt.Sprintf("net.%s.neigh.default.gc_thresh%d", family, n), value)
	}
	link := "link \"a\" {\n  match { kind = \"veth\" }\n  sysctl = { \"net.ipv4.conf.*.rp_filter\" = 0 }\n}\n"
	for _, c := range [][2]string{
		{thresh("ipv4", 1, "value = 90000") + thresh("ipv4", 3, "value = 4096"),
			"p.hcl:4,8-43: Wrong order; net.ipv4.neigh.default.gc_thresh3 must be 4096"},
		{thresh("ipv6", 2, "min = 8192") + thresh("ipv6", 3, "one_of = [1024, 4096]"), "Wrong order"},
		{thresh("ipv6", 2, "min = 8192") + thresh("ipv4", 3, "value = 4096"), ""},
		{thresh("ipv4", 1, "min = 80000") + thresh("ipv4", 2, "min = 90000") + thresh("ipv4", 3, "min = 100000"), ""},
		{thresh("ipv4", 1, "value = 16 * node.cpus") + thresh("ipv4", 2, "value = 2048"), "This happens on a node with 192 CPUs."},
		{set("net.ipv4.conf.all.rp_filter", "value = 1") + link, "Wrong order; net.ipv4.conf.*.rp_filter must be 0"},
		{set("net.ipv4.conf.all.rp_filter", "value = 1") + set("net.ipv4.conf.lo.rp_filter", "value = 0"), "Wrong order"},
		{set("net.ipv4.conf.all.rp_filter", "value = 0") + link, ""},
		{set("net.ipv4.conf.all.rp_filter", "one_of = [0, 2]") + link, ""},
		{set("net.ipv4.conf.all.rp_filter", "value = 1") + set("net.ipv4.conf.lo.rp_filter", "value = 2"), ""},
		{set("net.ipv4.tcp_mem", "value = \"300000 200000 100000\""), "low, pressure and high"},
		{set("net.ipv4.tcp_rmem", "one_of = [\"4096 131072 65536\", \"4096 131072 6291456\"]"), "Wrong order"},
		{set("net.ipv4.udp_mem", "value = \"100000 200000 300000\""), ""},
		{set("net.ipv4.ip_local_port_range", "value = \"60999 32768\""), "the kernel refuses"},
		{set("net.ipv4.ip_local_port_range", "value = \"1024 65535\""), "Node ports; The kernel assigns the local ports 30000-32767"},
		{set("net.ipv4.ip_local_port_range", "value = \"32000 60999\""), "local ports 32000-32767"},
		{set("net.ipv4.ip_local_port_range", "value = \"32768 60999\""), ""},
		{set("net.ipv4.ip_local_port_range", "value = \"1024 65535\"") +
			set("net.ipv4.ip_local_reserved_ports", "value = \"10250,30000-31000,31001-32767\""), ""},
	} {
		diags := policy.Lint([]policy.File{{Name: "p.hcl", Text: []byte(c[0])}}, known())
		diags = slices.DeleteFunc(diags, func(d *hcl.Diagnostic) bool { return d.Summary == "Harmful value" })
		got := diags.Error()
		if len(diags) > 1 {
			got = fmt.Sprint(diags.Errs(), diags)
		}
		if len(diags) > 1 || (len(diags) > 0) != (c[1] != "") || !strings.Contains(got, c[1]) {
			t.Errorf("%s\n%s", c[0], got)
		}
	}
}
