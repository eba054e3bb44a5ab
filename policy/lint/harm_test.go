package lint_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/policy"
	"nodegate/policy/lint"
)

// TestHarmfulValues: lint warns of a value that every kernel accepts and no node of a cluster wants, unless the policy allows the name.
func TestHarmfulValues(t *testing.T) {
	for _, c := range []struct{ key, value, want string }{
		{"net.netfilter.nf_conntrack_tcp_timeout_established", "value = 5", "usual is 900 to 2592000 seconds"},
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
		{"net.netfilter.nf_conntrack_tcp_timeout_established", "value = 300", "usual is 900 to 2592000 seconds"},
		{"kernel.randomize_va_space", "value = 0", "usual is 1 to 2"},
		{"kernel.randomize_va_space", "value = 2", ""},
		{"kernel.unprivileged_bpf_disabled", "value = 0", "may load BPF programs"},
		{"net.ipv4.conf.all.accept_source_route", "value = 1", "a sender chooses the path"},
		{"net.ipv4.conf.default.accept_source_route", "value = 0", ""},
		{"net.ipv6.conf.all.accept_source_route", "value = 1", "a sender chooses the path"},
		{"net.ipv4.tcp_syncookies", "value = 0", "a flood of connection requests"},
		{"net.ipv4.tcp_syncookies", "value = 2", ""},
		{"user.max_user_namespaces", "value = 0", "hostUsers = false"},
		{"user.max_user_namespaces", "value = 15000", ""},
		{"vm.vfs_cache_pressure", "value = 2000", ""},
	} {
		text := fmt.Sprintf("sysctl %q {\n  %s\n}\n", c.key, c.value)
		for _, allowed := range []bool{false, true} {
			if allowed {
				text += fmt.Sprintf("lint { allow_names = [%q] }\n", c.key)
			}
			var found []string
			for _, d := range lint.Lint([]policy.File{{Name: "p.hcl", Text: []byte(text)}}, known()) {
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

// TestMeaning: lint names what an accepted policy would do to a node, at the line that does it, and is silent about its healthy neighbour.
func TestMeaning(t *testing.T) {
	set := func(key, value string) string { return fmt.Sprintf("sysctl %q {\n  value = %s\n}\n", key, value) }
	hardened := set("net.ipv4.ip_forward", "0") + set("net.ipv6.conf.all.disable_ipv6", "1") + set("net.ipv4.conf.all.rp_filter", "1")
	for _, c := range []struct {
		text string
		want []string // line and the beginning of the message
	}{
		{hardened, []string{"2 Harmful value", "4 Harmful value", "7 Harmful value"}},
		{set("kernel.panic", "0") + set("kernel.hung_task_panic", "1"), []string{"1 Harmful value"}},
		{set("kernel.panic", "0"), nil},
		{set("net.ipv6.conf.all.forwarding", "1") + set("net.ipv6.conf.eth0.accept_ra", "1"), []string{"4 Harmful value", "4 Only with"}},
		{set("net.ipv6.conf.all.forwarding", "1") + set("net.ipv6.conf.default.accept_ra", "2"), nil},
		{set("net.ipv6.conf.all.forwarding", "1") + set("net.ipv6.conf.all.disable_ipv6", "1"), []string{"4 Harmful value"}},
		{set("net.ipv6.conf.all.disable_ipv6", "1") + set("net.ipv6.conf.lo.disable_ipv6", "0"), nil},
		{set("net.ipv4.conf.all.rp_filter", "1") + "use \"flannel-vxlan\" {}\n", nil},
		{set("net.ipv4.conf.*.forwarding", "0"), []string{"2 Harmful value"}},
		{set("net.ipv4.ip_local_reserved_ports", `""`), nil},
		{set("vm.max_map_count", `"0262144"`), []string{"2 Leading zero"}},
		{"sysctl \"net.ipv6.conf.eth0.stable_secret\" { value = \"2001:db8::1\" }", []string{"1 A secret"}},
		{"sysctl \"net.ipv4.tcp_fastopen_key\" { value = \"0-0-0-0\" }", []string{"1 A secret"}},
		{"module \"loop\" {\n  options = { max_loop = \"0600\" }\n}", []string{"2 Leading zero"}},
		{"sysfs \"kernel/mm/transparent_hugepage/enable\" { value = \"never\" }", []string{"1 Unknown attribute"}},
		{"sysfs \"block/*/queue/read_ahed_kb\" { value = 16 }", []string{"1 Unknown attribute"}},
		{"sysfs \"kernel/mm/hugepages/hugepages-2048kB/nr_hugepages\" { value = 16 }", nil},
		{"sysfs \"devices/system/cpu/cpu*/cpufreq/scaling_governor\" { value = \"performance\" }", nil},
		{"sysfs \"devices/system/cpu/intel_pstate/no_turbo\" { value = 1 }", []string{"1 Only with this device"}},
		{"link \"a\" {\n  match { driver = \"ice\" }\n  mtu = 576\n}", []string{"3 Harmful value"}},
		{"link \"a\" {\n  match { default_route = true }\n  mtu = 9001\n}", []string{"3 Harmful value"}},
		{"gate { budget = \"5s\" }\ncheck \"exec\" { command = [\"/bin/x\"] }", []string{"2 Longer than the budget"}},
		{"gate { budget = \"5s\" }\nprobe \"bridge\" { timeout = \"30s\" }", []string{"2 Longer than the budget"}},
		{"check \"exec\" {\n  command = [\"/bin/x\"]\n  stages = [\"run\"]\n  drift = \"ignore\"\n}", []string{"4 Never runs"}},
		{"check \"late\" { severity = \"block\" }", []string{"1 Holds nothing"}},
		{"check \"late\" {}", nil},
		{"variable \"v\" { default = 1 }", []string{"1 Unused variable"}},
		{set("net.core.somaxconn", "32768\n  reason = \"the ingress Pods\""), []string{"3 Not for Pods"}},
		{set("net.core.somaxconn", "32768\n  reason = \"ingress Pods with hostNetwork\""), nil},
		{set("net.core.somaxconn", "32768"), nil},
		{set("net.ipv4.tcp_congestion_control", "\"cubic\"\n  reason = \"Pods send far\""), nil},
		{set("net.ipv4.ip_forward", "1\n  reason = \"packets of Pods\""), nil},
		{"variable \"v\" { default = 1 }\ngate { repair = var.v == 1 }", nil},
		{set("net.ipv6.conf.all.accept_ra", "0"), []string{"1 Harmful value"}},
		{set("net.ipv4.tcp_max_syn_backlog", "65536") + set("net.core.somaxconn", "4096"), nil},
		{"module \"overlay\" {\n  when = os.id == \"amazon\"\n}", []string{"2 Unknown value"}},
		{"module \"overlay\" {\n  when = contains([\"redhat\", \"openEuler\"], os.id)\n}", []string{"2 Unknown value"}},
		{"variable \"v\" { default = \"suse\" }\nmodule \"overlay\" {\n  when = os.id != var.v\n}", []string{"3 Unknown value"}},
		{"module \"overlay\" {\n  when = contains([\"amzn\", \"rhel\", \"sles\", \"photon\", \"talos\"], os.id)\n}", nil},
		{"gate {\n  on_held = [\"/usr/bin/systemctl\", \"reboot\"]\n}", []string{"2 Harmful program"}},
		{"gate {\n  on_held = [\"/bin/sh\", \"-c\", \"sleep 9; shutdown -r now\"]\n}", []string{"2 Harmful program"}},
		{"gate {\n  on_held = [\"/opt/ship\", \"reboot\"]\n}", nil},
		{"check \"exec\" {\n  command = [\"/usr/bin/curl\", \"-f\", \"registry.local\"]\n}", []string{"2 Harmful program"}},
		{"check \"exec\" {\n  command = [\"/opt/x\", \"https://api/healthz\"]\n}", []string{"2 Harmful program"}},
		{"check \"exec\" {\n  command = [\"/usr/bin/curl\", \"http://127.0.0.1:80/\"]\n}", nil},
		{"check \"exec\" {\n  command = [\"/usr/bin/curl\", \"registry.local\"]\n  stages = [\"run\"]\n}", nil},
		{"check \"exec\" {\n  command = [\"/usr/bin/curl\", \"registry.local\"]\n  severity = \"warn\"\n}", nil},
		{"gate {\n  enforce = \"warn\"\n  on_held = [\"/bin/x\"]\n}", []string{"3 Holds nothing"}},
	} {
		o := known()
		o.Checks, o.AtBoot = append(o.Checks, "late"), o.Checks
		var got []string
		for _, d := range lint.Lint([]policy.File{{Name: "p.hcl", Text: []byte(c.text)}}, o) {
			got = append(got, fmt.Sprintf("%d %s", d.Subject.Start.Line, d.Summary))
			t.Log(d)
		}
		slices.Sort(got)
		wants := slices.Sorted(slices.Values(c.want))
		assert.True(t, slices.EqualFunc(got, wants, strings.HasPrefix), "%s\ngot  %q\nwant %q", c.text, got, wants)
	}
}
