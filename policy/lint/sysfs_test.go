package lint_test

import (
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/policy"
	"nodegate/policy/lint"
)

func TestSysfs(t *testing.T) {
	p := load(t, `
		sysfs "kernel/mm/transparent_hugepage/enabled" { value = "madvise" }
		sysfs "/sys/kernel/mm/transparent_hugepage/enabled" { one_of = ["never", "madvise"] }
		sysfs "block/*/queue/read_ahead_kb" { min = 128 }
		sysfs "class/net/eth0.100/queues/rx-0/rps_cpus" { value = "f" }
		override "sysctl.kernel.panic" { value = 5 }
		use "kubernetes" {}`)
	var all []string
	for _, s := range p.Sysfs {
		all = append(all, s.Key.CheckName()+" "+s.Want()+" "+s.Key.File())
	}
	want := `sysfs.kernel/mm/transparent_hugepage/enabled madvise /sys/kernel/mm/transparent_hugepage/enabled
sysfs.block/*/queue/read_ahead_kb at least 128 /sys/block/*/queue/read_ahead_kb
sysfs.class/net/eth0.100/queues/rx-0/rps_cpus f /sys/class/net/eth0.100/queues/rx-0/rps_cpus`
	assert.Equal(t, strings.Join(all, "\n"), want)
}

// TestSysfsMistakes: lint refuses paths that a policy may not write and words that the kernel does not know.
// SECURITY.md: sysfs.
func TestSysfsMistakes(t *testing.T) {
	for text, want := range map[string]string{
		`sysfs "block/sda/device/delete" { value = 1 }`:                                                                   "a policy may not write",
		`sysfs "devices/system/cpu/probe" { value = 1 }`:                                                                  "is a command",
		`sysfs "devices/system/cpu/release" { value = 1 }`:                                                                "is a command",
		`sysfs "devices/system/cpu/cpu0/uevent" { value = "add" }`:                                                        "is a command",
		`sysfs "devices/system/cpu/microcode/reload" { value = 1 }`:                                                       "is a command",
		`sysfs "devices/system/cpu/cpu1/hotplug/fail" { value = 1 }`:                                                      "is a command",
		`sysfs "devices/system/cpu/cpu1/hotplug/t*" { value = 1 }`:                                                        "or matches one",
		`sysfs "kernel/mm/hugepages/hugepages-1048576kB/demote" { value = 1 }`:                                            "is a command",
		`sysfs "devices/system/cpu/cpu0/driver/x" { value = 1 }`:                                                          "leads through the link driver",
		`sysfs "devices/system/cpu/cpu0/subsystem/cpu1/online" { value = 0 }`:                                             "leads through the link subsystem",
		`sysfs "devices/system/cpu/cpu0/node0/hugepages/hugepages-2048kB/nr_hugepages" { value = 1 }`:                     "leads through the link node0",
		`sysfs "kernel/debug/x" { value = 1 }`:                                                                            "a policy may not write",
		`sysfs "kernel/mm/../debug" { value = 1 }`:                                                                        "would leave /sys",
		`sysfs "//kernel/mm" { value = 1 }`:                                                                               "is not below /sys",
		`sysfs "kernel/mm/transparent_hugepage/enabled" { value = "madvised" }`:                                           `takes "always", "madvise" or "never", not "madvised"`,
		`sysfs "kernel/mm/transparent_hugepage/enabled" { one_of = ["never", "of"] }`:                                     `not "of"`,
		`sysfs "devices/system/cpu/smt/control" { one_of = ["notsupported", "off"] }`:                                     `not "notsupported"`,
		`sysfs "devices/system/cpu/smt/control" { one_of = ["off", "no", "notsupported"] }`:                               `not "no"`,
		"sysfs \"block/*/queue/scheduler\" { value = \"none\" }\nsysfs \"block/sda/queue/scheduler\" { value = \"bfq\" }": "Contradiction",
		`sysfs "devices/system/clocksource/clocksource0/unbind_clocksource" { value = "tsc" }`:                            "a policy may not write",
		`sysfs "devices/system/clocksource/clocksource0/u*" { value = "tsc" }`:                                            "a policy may not write",
		"gate { unit = \"@x.service\" }":                                                                                  "is the name of no unit",
		"gate { unit = \"kubelet@.service\" }":                                                                            "is a template",
		`sysfs "kernel/mm/ksm/run" {}`:                                                                                    "Missing value",
	} {
		diags := lint.Lint([]policy.File{{Name: "test.hcl", Text: []byte(text)}}, known())
		assert.True(t, strings.Contains(diags.Error(), want), "%s\n%v\nwant %s", text, diags, want)
	}
	for _, text := range []string{
		`sysfs "kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages" {
		   value = 4
		   when  = node.memory > 64 * 1024 * 1024 * 1024
		 }`,
		`sysfs "devices/system/cpu/smt/control" { one_of = ["off", "forceoff", "notsupported", "notimplemented"] }`,
		`sysfs "block/nvme*/queue/scheduler" { value = "none" }`,
		`sysfs "devices/system/clocksource/clocksource0/current_clocksource" { value = "tsc" }`,
		`sysfs "module/nvme_core/parameters/io_timeout" { min = 4294967295 }`,
	} {
		if diags := lint.Lint([]policy.File{{Name: "test.hcl", Text: []byte(text)}}, known()); len(diags) > 0 {
			t.Errorf("%s\n%v", text, diags)
		}
	}
}

// TestSysfsRefused lints values that the kernel refuses or that stop the node, and their neighbours.
func TestSysfsRefused(t *testing.T) {
	for _, c := range []struct{ path, body, want string }{
		{"devices/system/cpu/cpu*/online", "value = 1", ""},
		{"devices/system/cpu/cpu1/online", "value = 0", ""},
		{"devices/system/cpu/smt/control", `one_of = ["off", "forceoff", "notsupported"]`, ""},
		{"devices/system/cpu/smt/control", `value = "notsupported"`, "Wrong value"},
		{"block/*/queue/scheduler", `value = "noop"`, `Linux 5.0 removed the I/O scheduler noop. Write "none"`},
		{"block/*/queue/scheduler", "value = \"noop\"\n  when = !version_at_least(kernel.version, \"5.0\")", ""},
		{"block/*/queue/scheduler", `one_of = ["none", "noop"]`, ""},
		{"block/*/queue/scheduler", `value = "mq-deadlin"`, "Unknown I/O scheduler"},
		{"block/nvme*/queue/scheduler", `value = "kyber"`, ""},
		{"block/*/queue/rotational", "value = 0", ""},
		{"block/sda/queue/rotational", "value = 0", `write "block/*/queue/rotational"`},
		{"block/sda/queue/rotational", "value = 0\n  when = os.id == \"debian\"", ""},
		{"class/net/eth0/threaded", "value = 1", `write "class/net/*/threaded"`},
		{"class/net/*/gro_flush_timeout", "max = 20000", ""},
		{"class/net/*/napi_defer_hard_irqs", "min = 2", ""},
		{"kernel/mm/ksm/run", "one_of = [2, 0]", ""},
		{"class/net/*/queues/tx-*/xps_cpus", `value = "00000000,000000FF"`, ""},
		{"devices/virtual/workqueue/cpumask", "value = 10", ""},
	} {
		text := "sysfs \"" + c.path + "\" {\n  " + c.body + "\n  reason = \"r\"\n}"
		diags := lint.Lint([]policy.File{{Name: "test.hcl", Text: []byte(text)}}, known())
		got := ""
		for _, d := range diags {
			got += d.Summary + "; " + d.Detail + "\n"
		}
		assert.True(t, (c.want != "" || got == "") && strings.Contains(got, c.want), "%s\n%s\nwant %s", text, got, c.want)
	}
}

// TestSysfsValues: values that mean the same to the kernel are equal.
func TestSysfsValues(t *testing.T) {
	for _, c := range []struct {
		path, want, got string
		same            bool
	}{
		{"module/kvm/parameters/halt_poll_ns", "1", "1", true},
		{"module/kvm/parameters/nx_huge_pages", "1", "Y", true},
		{"module/kvm/parameters/nx_huge_pages", "0", "Y", false},
		{"class/net/eth0/queues/rx-0/rps_cpus", "f", "00000000,0000000f", true},
		{"class/net/eth0/queues/rx-0/rps_cpus", "10", "16", false},
		{"class/net/eth0/queues/rx-0/rps_cpus", "0", "00000000", true},
		{"kernel/mm/lru_gen/enabled", "7", "0x0007", true},
		{"kernel/mm/lru_gen/enabled", "5", "0x0007", false},
		{"kernel/mm/transparent_hugepage/enabled", "never", "never", true},
	} {
		s := policy.Sysctl{Key: policy.Key("/sys/" + c.path), Value: c.want}
		assert.True(t, s.Allows(c.got) == c.same, "%s: %s and %s: same is %t", c.path, c.want, c.got, !c.same)
	}
}
