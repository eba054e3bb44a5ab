package policy_test

import (
	"fmt"
	"strings"
	"testing"

	"nodegate/policy"
)

// TestHarmfulValues: lint warns of a value that every kernel accepts and no node of a cluster wants, unless the policy allows the name.
func TestHarmfulValues(t *testing.T) {
	for _, c := range []struct{ key, value, want string }{
		{"net.netfilter.nf_conntrack_tcp_timeout_established", "value = 5", "usual is 300 to 2592000 seconds"},
		{"net.netfilter.nf_conntrack_tcp_timeout_established", "value = 86400", ""},
		{"net.netfilter.nf_conntrack_max", "max = 1024", "a full table drops every new connection; usual is at least 16384 connections"},
		{"net.netfilter.nf_conntrack_max", "min = 1024", ""}, // lowers nothing
		{"net.netfilter.nf_conntrack_max", "min = max(131072, 32768 * node.cpus)", ""},
		{"net.ipv4.tcp_mem", `value = "64 128 256"`, "usual is at least 4096 pages"},
		{"net.ipv4.tcp_fin_timeout", "value = 15000", "usual is 1 to 300 seconds"},
		{"net.ipv4.ip_local_port_range", `value = "60900 60999"`, "100 local ports"},
		{"net.ipv4.ip_local_port_range", `value = "32768 60999"`, ""},
		{"net.ipv4.ip_forward", "value = 0", "the node drops every packet between its Pods and other machines; usual is at least 1"},
		{"kernel.core_pattern", `value = "|systemd-coredump %P"`, "write |/PATH"},
		{"kernel.core_pattern", `value = "|/usr/lib/systemd/systemd-coredump %P"`, ""},
		{"kernel.panic", "value = -1", ""},
	} {
		text := fmt.Sprintf("sysctl %q {\n  %s\n}\n", c.key, c.value)
		for _, allowed := range []bool{false, true} {
			if allowed {
				text += fmt.Sprintf("lint { allow_names = [%q] }\n", c.key)
			}
			var found []string
			for _, d := range policy.Lint([]policy.File{{Name: "p.hcl", Text: []byte(text)}}, known()) {
				if d.Summary == "Harmful value" {
					found = append(found, d.Subject.String()+" "+d.Detail)
				}
			}
			got := strings.Join(found, "\n")
			want := c.want
			if allowed {
				want = ""
			}
			if (got == "") != (want == "") || got != "" && !strings.HasPrefix(got, "p.hcl:2,") || !strings.Contains(got, want) {
				t.Errorf("%s reports %q, want %q", text, got, want)
			}
		}
	}
}
