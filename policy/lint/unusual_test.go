package lint_test

import (
	"testing"

	"nodegate/policy"
	"nodegate/policy/lint"
)

// TestUnusual: unusual policies that are right pass Lint without a warning.
func TestUnusual(t *testing.T) {
	const because = "\n  reason = \"a test\"\n"
	for _, text := range []string{
		`sysctl "kernel.shmmax" {
		  value = 18446744073692774399` + because + `}`,
		`sysctl "kernel.shmall" {
		  value = "18446744073692774399"` + because + `}`,
		`sysctl "kernel.watchdog_cpumask" {
		  value = "0-3,8-11"` + because + `}`,
		`sysctl "net.core.flow_limit_cpu_bitmap" {
		  value = "00000000,000000ff"` + because + `}`,
		`sysctl "net.ipv4.conf.all.rp_filter" {
		  one_of = [2, 0]` + because + `}`,
		`sysctl "net.ipv4.conf.*.rp_filter" {
		  one_of = [2, 0]` + because + `}`,
		`sysctl "net.ipv4.ip_local_reserved_ports" {
		  value = "30000-32767,10250"` + because + `}`,
		`sysctl "net.ipv4.tcp_rmem" {
		  value = "4096 131072 33554432"` + because + `}`,
		`sysctl "net.ipv4.tcp_congestion_control" {
		  one_of = ["bbr", "cubic"]` + because + `}`,
		`sysctl "vm.swappiness" {
		  min = 0
		  max = 200` + because + `}`,
		`sysctl "kernel.panic" {
		  value = -1` + because + `}`,
		`sysctl "vm.overcommit_memory" {
		  one_of = [1, 0]` + because + `}`,
		`sysctl "kernel.core_pattern" {
		  value = "|/usr/lib/systemd/systemd-coredump %P %u %g %s %t %c %h"` + because + `}`,
		`sysctl "kernel.modprobe" {
		  value = "/sbin/modprobe"` + because + `}`,
		`sysctl "fs.inotify.max_user_watches" {
		  min = max(524288, 65536 * node.cpus)` + because + `}`,
		`sysctl "net.netfilter.nf_conntrack_max" {
		  min  = min(1048576, max(131072, floor(node.memory / 16384)))
		  when = version_at_least(kernel.version, "4.18") && !version_at_least(kernel.version, "6.12")` + because + `}`,
		`sysctl "kernel.panic" {
		  value  = 10
		  reason = <<-EOT
		    Several lines
		    of reason.
		  EOT
		}`,
		`variable "role" { default = "worker" }
		sysctl "kernel.panic" {
		  value  = var.role == "worker" ? 10 : 0
		  reason = "a ${var.role} %{ if var.role == "worker" }reboots%{ else }stays%{ endif }"
		}`,
		`link "pods" {
		  match { kind = "veth" }
		  sysctl = { "net.ipv4.conf.*.rp_filter" = 0, "net.ipv6.conf.*.accept_ra" = 0 }` + because + `}`,
		`link "cards" {
		  match { driver = "ena" }
		  mtu = 9001` + because + `}
		link "overlay" {
		  match { name = "flannel*" }
		  mtu = 8951` + because + `}
		link "uplink" {
		  match {
		    driver        = "virtio_net"
		    default_route = true
		  }
		  mtu     = 1460
		  offload = { tx-udp_tnl-segmentation = false }` + because + `}`,
		`sysctl "kernel.sched_min_granularity_ns" {
		  value = 3000000
		  when  = !version_at_least(kernel.version, "5.13")` + because + `}`,
		`sysctl "vm.swappiness" {
		  value = 0
		  when  = os.id == "debian"` + because + `}
		sysctl "vm.swappiness" {
		  value = 10
		  when  = os.id != "debian"` + because + `}`,
	} {
		files := []policy.File{{Name: "p.hcl", Text: []byte(text)}}
		p, diags := policy.Load(files, known())
		if diags.HasErrors() {
			t.Errorf("%s\n%v", text, diags)
			continue
		}
		if diags, advice := lint.Lint(files, known()), lint.Advice(p); len(diags) > 0 || len(advice) > 0 {
			t.Errorf("%s\n%v %s", text, diags, advice)
		}
	}
}
