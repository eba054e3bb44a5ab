package lint_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"

	"nodegate/internal/assert"
	"nodegate/policy"
	"nodegate/policy/lint"
)

// TestDomains: Lint reports what the recorded kernels do with a value, at its position.
func TestDomains(t *testing.T) {
	for _, c := range []struct{ key, body, want string }{
		// refused by all
		{"vm.swappiness", "value = 500", "error 2:11: Refused by the kernel; vm.swappiness = 500: refused by Linux 5.10, 6.1 and 6.12; accepted: 0 to 200."},
		{"net.ipv4.ip_local_port_range", `value = "1000 29999"`, "refused by Linux 5.10, 6.1 and 6.12; accepted: 1024 to 65535 each."},
		{"net.ipv4.tcp_rmem", `value = "1024 4096 16777216"`, "refused by Linux 6.1 and 6.12; accepted: 4096 to 2147483647 each."},
		{"vm.panic_on_oom", "value = -1", "error 2:11: Refused by the kernel; vm.panic_on_oom = -1: refused by Linux 5.10, 6.1 and 6.12; accepted: 0 to 2."},
		{"net.ipv4.ip_forward", "value = 4294967296", "error 2:11: Refused by the kernel; "},
		{"net.ipv4.ip_local_port_range", `value = "60999 32768"`, "error 2:11: Refused by the kernel; "},
		{"net.ipv4.ip_local_port_range", `value = "32768 70000"`, "error 2:11: Refused by the kernel; "},
		{"net.core.flow_limit_table_len", "value = 1000", "error 2:11: Refused by the kernel; "},
		{"net.netfilter.nf_conntrack_max", "min = 4294967296", "error 2:9: Refused by the kernel; "},
		{"vm.swappiness", "max = -5", "error 2:9: Refused by the kernel; "},
		{"kernel.pid_max", "value = node.cpus * 1000000", "error 2:11: Refused by the kernel; "},
		// refused by some
		{"net.ipv4.tcp_ecn", "value = 5", "warning 2:11: Refused by the kernel; net.ipv4.tcp_ecn = 5: refused by Linux 6.1 and 6.12; accepted: 0 to 2."},
		{"net.ipv4.tcp_ecn", "value = 5\n  when = version_at_least(kernel.version, \"6.0\")", "error 2:11: Refused by the kernel; "},
		{"net.ipv4.tcp_ecn", "value = 5\n  when = !version_at_least(kernel.version, \"6.0\")", ""},
		{"kernel.numa_balancing", "value = 2\n  when = version_at_least(kernel.version, \"5.0\")",
			"error 2:11: Refused by the kernel; kernel.numa_balancing = 2: refused by Linux 5.10; accepted: 0 to 1."},
		{"net.netfilter.nf_conntrack_buckets", "min = 100000", ""},
		{"net.netfilter.nf_conntrack_buckets", "value = 65536", ""},
		{"net.core.rps_sock_flow_entries", "value = 32768", ""},
		{"net.core.rps_sock_flow_entries", "value = 0", ""},
		{"net.core.rps_sock_flow_entries", "value = 1073741824", "error 2:11: Refused by the kernel; "},
		{"net.ipv4.ping_group_range", `value = "1 0"`, ""},
		{"net.ipv4.ip_local_reserved_ports", `value = "8080,32767-30000"`, "error 2:11: Refused by the kernel; "},
		{"net.ipv4.ip_local_reserved_ports", `value = "8080,30000-32767"`, ""},
		{"vm.swappiness", `value = "+5"`, `error 2:11: Wrong type; vm.swappiness takes numbers; "+5" is not a number. Write 5.`},
		{"vm.swappiness", `value = "1_0"`, "error 2:11: Wrong type; "},
		// read-only, one-way
		{"kernel.osrelease", `value = "6.1.0"`, "error 2:11: Read-only; kernel.osrelease = 6.1.0: read-only on Linux 5.10, 6.1 and 6.12"},
		{"net.netfilter.nf_conntrack_count", "max = 100000", "error 2:9: Read-only; "},
		{"kernel.modules_disabled", "value = 1", "warning 2:11: Cannot be undone; kernel.modules_disabled = 1: the old value is refused by " +
			"Linux 5.10, 6.1 and 6.12 until the next boot, so `nodegate revert` cannot restore it. No module loads any more"},
		{"kernel.kexec_load_disabled", "value = 1", "kernel.kexec_load_disabled = 1: the old value is refused by Linux 5.10, 6.1 and 6.12"},
		{"kernel.kexec_load_disabled", "value = 1\n}\nlint {\n  allow_names = [\"kernel.kexec_load_disabled\"]", ""},
		{"kernel.unprivileged_bpf_disabled", "one_of = [1, 2]\n}\nlint {\n  allow_names = [\"kernel.unprivileged_bpf_disabled\"]", ""},
		{"kernel.modules_disabled", "one_of = [0]", ""},
		{"kernel.modules_disabled", "value = 0", ""},
		{"vm.dirty_bytes", "value = 0", ""},
		{"vm.dirty_bytes", "value = 1", "error 2:11: Refused by the kernel; "},
		// other distributions
		{"net.core.netdev_budget_usecs", "value = 1000\n  when = os.id == \"ubuntu\"", "warning 2:11: Refused by the kernel; "},
		{"kernel.sched_latency_ns", "value = 10000000\n  when = os.id == \"ubuntu\"", ""},
		{"kernel.sched_latency_ns", "value = 10000000\n  when = os.id == \"ubuntu\" && os.version == \"20.04\"", ""},
		{"kernel.sched_latency_ns", "value = 10000000\n  when = os.id == \"debian\" && os.version == \"11\"", ""},
		{"kernel.sched_latency_ns", "value = 10000000\n  when = os.id == \"debian\" && os.version == \"12\"", "warning 1:8: Not on every kernel; "},
		{"kernel.yama.ptrace_scope", "value = 3", "warning 2:11: Cannot be undone; "},
		{"kernel.unprivileged_bpf_disabled", "value = 1", "warning 2:11: Cannot be undone; "},
		{"kernel.unprivileged_bpf_disabled", "value = 2", ""},
		{"kernel.yama.ptrace_scope", "value = 1", ""},
		{"kernel.nmi_watchdog", "value = 0", ""},
		{"kernel.nmi_watchdog", "value = 0\n  when = version_at_least(kernel.version, \"6.12\")", ""},
		{"kernel.msg_next_id", "value = 5\n  when = version_at_least(kernel.version, \"6.1\")", "warning 2:11: Read-only; "},
		// names of some kernels or machines
		{"kernel.sched_min_granularity_ns", "value = 10000000", "warning 1:8: Not on every kernel; kernel.sched_min_granularity_ns: of the recorded " +
			"kernels, only in Linux 5.10. A node with another one is held. Write when = !version_at_least(kernel.version, \"6.1\")."},
		{"kernel.sched_min_granularity_ns", "value = 10000000\n  when = !version_at_least(kernel.version, \"6.1\")", ""},
		{"net.ipv4.tcp_pingpong_thresh", "value = 1", "Write when = version_at_least(kernel.version, \"6.12\")."},
		{"net.ipv4.conf.eth0.rp_filter", "value = 2", "warning 1:8: Only with this interface; "},
		{"net.ipv4.conf.eth0.rp_filter", "value = 2\n  severity = \"warn\"", ""},
		// numbers that stop the machine
		{"kernel.pid_max", "value = 400", "error 2:11: Too few; "},
		{"kernel.threads-max", "value = 5000", "warning 2:11: Too few; "},
		{"fs.file-max", "max = 1000", "error 1:8: Too few; "},
		{"fs.nr_open", "value = 1024", "error 2:11: Too few; "},
		{"user.max_net_namespaces", "value = 0", "error 2:11: Too few; "},
	} {
		text := fmt.Sprintf("sysctl %q {\n  %s\n}\n", c.key, c.body)
		diags := lint.Lint([]policy.File{{Name: "p.hcl", Text: []byte(text)}}, known())
		var got []string
		for _, d := range diags {
			severity := "warning"
			if d.Severity == hcl.DiagError {
				severity = "error"
			}
			got = append(got, fmt.Sprintf("%s %d:%d: %s; %s", severity, d.Subject.Start.Line, d.Subject.Start.Column, d.Summary, d.Detail))
		}
		if len(got) > 1 && c.key != "kernel.unprivileged_bpf_disabled" || (len(got) > 0) != (c.want != "") || len(got) > 0 && !strings.Contains(got[0], c.want) {
			t.Errorf("%s%s", text, strings.Join(got, "\n"))
		}
	}
}

// TestMistakesElsewhere: a mistake in one block hides none of another block.
func TestMistakesElsewhere(t *testing.T) {
	text := "sysctl \"net.ipv4.ip_forward\" { value = \"yes\" }\nsysctl \"vm.swappiness\" { value = 500 }\n" +
		"sysctl \"vm.min_free_kbytes\" { value = 1073741824 }\nsysctl \"kernel.panic\" { value = node.cpus * 1.5 }\n" +
		"sysctl \"vm.panic_on_oom\" {\n  value = 7\n  severity = \"high\"\n}\n"
	got := map[string]int{}
	for _, d := range lint.Lint([]policy.File{{Name: "p.hcl", Text: []byte(text)}}, known()) {
		got[d.Summary]++
	}
	// The wrong severity and kernel.panic are wrong values.
	if want := map[string]int{"Wrong type": 1, "Refused by the kernel": 1, "Takes the memory": 1, "Wrong value": 2}; !maps.Equal(got, want) {
		t.Error(got)
	}
	for _, d := range lint.Lint([]policy.File{{Name: "a.hcl", Text: []byte("sysctl {")},
		{Name: "p.hcl", Text: []byte(`sysctl "vm.swappiness" { value = 500 }`)}}, known()) {
		assert.True(t, d.Subject.Filename == "a.hcl", "judged without a.hcl: %v", d)
	}
}

// TestUnusualDomains: unusual policies that do no harm pass Lint without a word.
func TestUnusualDomains(t *testing.T) {
	for _, text := range []string{
		`sysctl "vm.swappiness" { min = 0 }`,
		`sysctl "vm.swappiness" { max = 1000 }`,
		`sysctl "net.core.somaxconn" { one_of = [4096, 65535] }`,
		`sysctl "kernel.shmmax" { value = 18446744073692774399 }`,
		`sysctl "kernel.shmall" { value = "18446744073692774399" }`,
		`sysctl "fs.file-max" { value = 9223372036854775807 }`,
		`sysctl "kernel.watchdog_cpumask" { value = "0-3,8" }`,
		`sysctl "net.core.rps_default_mask" {
		   value = "ff"
		   when  = version_at_least(kernel.version, "6.12")
		 }`,
		"sysctl \"net.ipv4.tcp_rmem\" {\n  value = <<-EOT\n    4096 131072 6291456\n  EOT\n}",
		`sysctl "kernel.core_pattern" { value = "|/usr/lib/systemd/systemd-coredump %P %u %g %s %t %c %h" }`,
		`sysctl "net.ipv4.ip_local_port_range" { value = "15000 29999" }`,
		`sysctl "net.ipv4.ip_unprivileged_port_start" { value = 0 }
		 sysctl "net.ipv4.ip_local_port_range" { value = "1 29999" }`,
		`sysctl "net.netfilter.nf_conntrack_max" { min = max(131072, 32768 * node.cpus) }`,
		`module "tcp_bbr" {}
		 sysctl "net.ipv4.tcp_congestion_control" { value = "bbr" }`,
		`sysctl "net.core.default_qdisc" { value = "fq" }`,
		`sysctl "kernel.sched_latency_ns" {
		   value = 10000000
		   when  = !version_at_least(kernel.version, "6.0")
		 }`,
		`sysctl "kernel.numa_balancing" { value = version_at_least(kernel.version, "6.1") ? 2 : 1 }`,
		`sysctl "crypto.fips_enabled" { value = 1 }`,
		`sysctl "vm.dirty_bytes" { value = 268435456 }`,
		`sysctl "vm.min_free_kbytes" { min = max(67584, floor(node.memory / 1024 / 100)) }`,
		`sysctl "net.ipv4.ping_group_range" { value = "0 2147483647" }`,
		`sysctl "kernel.printk" { value = "3 4 1 3" }`,
		`sysctl "kernel.sem" { value = "250 32000 100 128" }`,
		`sysctl "net.ipv4.conf.*.rp_filter" { one_of = [0, 2] }`,
		`sysctl "kernel.randomize_va_space" { value = "0x2" }`,
		`link "pods" {
		   match { name = "cali*" }
		   sysctl = { "net.ipv4.conf.*.rp_filter" = 0, "net.ipv4.neigh.*.base_reachable_time_ms" = 30000 }
		 }`,
		`sysctl "net.ipv4.tcp_mem" { value = "188319 251094 376638" }`,
	} {
		if diags := lint.Lint([]policy.File{{Name: "p.hcl", Text: []byte(text)}}, known()); len(diags) > 0 {
			t.Errorf("%s\n%v", text, diags.Errs())
			for _, d := range diags {
				t.Log(d)
			}
		}
	}
}
