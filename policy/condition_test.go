package policy_test

import (
	"fmt"
	"testing"

	"nodegate/policy"
)

// TestConditions: Lint warns of a when that no real node, or every real node, makes true, and of no other.
func TestConditions(t *testing.T) {
	for when, want := range map[string]string{
		`version_at_least(kernel.version, "99")`:                                                       "Never true",
		`version_at_least(kernel.version, "3.0")`:                                                      "Always true",
		`version_at_least(kernel.version, "6.1") && !version_at_least(kernel.version, "5.10")`:         "Never true",
		`os.id == "debian" && os.id == "ubuntu"`:                                                       "Never true",
		`os.id != "debian" || os.id != "ubuntu"`:                                                       "Always true",
		`node.cpus < 1`:                                                                                "Never true",
		`node.cpus > 100000`:                                                                           "Never true",
		`node.memory >= 32 * 1024 * 1024 * 1024 && node.memory < var.memory`:                           "Never true",
		`cloud.provider == "aws" && contains(["gcp", "azure"], cloud.provider)`:                        "Never true",
		`systemd.version >= 1252`:                                                                      "Never true",
		`version_at_least(kernel.version, "5.10") && !version_at_least(kernel.version, "6.1")`:         "",
		`version_at_least(kernel.version, "8")`:                                                        "",
		`version_at_least(kernel.version, "3.10")`:                                                     "",
		`node.memory >= 8 * 1024 * 1024 * 1024 && node.memory < var.memory`:                            "",
		`node.memory > 1024 * 1024 * 1024 && node.cpus >= 4 && os.id == "rhel" && os.version == "9.4"`: "",
		`can(regex("^5\\.15\\.0-1[0-9]+-aws$", kernel.release))`:                                       "",
		`lower(os.id) == "flatcar"`:                                                                    "",
		`node.memory / node.cpus > 4 * 1024 * 1024 * 1024`:                                             "",
		`contains(["debian", "ubuntu"], os.id) && !(os.id == "debian" && os.version == "11")`:          "",
		`cni.name == "my-own" && kube_proxy.mode != "ipvs"`:                                            "",
		`node.memory >= 33 * 1024 * 1024 * 1024 && node.memory < 48 * 1024 * 1024 * 1024`:              "",
		`cloud.provider == ""`:                                                                         "",
		`version_at_least(os.version, "1")`:                                                            "",
		`version_at_least(kubelet.version, "1.40")`:                                                    "",
		`systemd.version >= 258`:                                                                       "",
		`node.cpus > 1`:                                                                                "",
		`false`:                                                                                        "",
		`var.on`:                                                                                       "",
	} {
		text := "variable \"on\" { default = true }\nvariable \"memory\" { default = 17179869184 }\n" +
			fmt.Sprintf("module \"ip_vs\" { when = %s }\n", when)
		diags := policy.Lint([]policy.File{{Name: "p.hcl", Text: []byte(text)}}, known())
		got := ""
		for _, d := range diags {
			if d.Summary != "Unused variable" {
				got += d.Summary
			}
		}
		if got != want || diags.HasErrors() {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
	}
}

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
		if diags, advice := policy.Lint(files, known()), p.Advice(); len(diags) > 0 || len(advice) > 0 {
			t.Errorf("%s\n%v %s", text, diags, advice)
		}
	}
}
