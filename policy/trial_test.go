package policy_test

import (
	"fmt"
	"strings"
	"testing"

	"nodegate/policy"
)

// TestLintEffort bounds the work of Lint by its allocations: they grow with the number of blocks, not with its square, although
// each block compares the facts with numbers of its own. Parameters of links that can only contradict that of all links, and links that
// no interface matches together, are apart.
func TestLintEffort(t *testing.T) {
	conditions := []string{
		"version_at_least(kernel.version, \"5.%[1]d\") && node.memory >= %[1]d * 1024 * 1024",
		"contains([\"debian\", \"ubuntu\"], os.id) && node.cpus > %[1]d",
	}
	for _, format := range []string{
		"sysctl \"a.b%[1]d\" {\n  min = max(%[1]d, floor(node.memory / 4096))\n  when = %[2]s\n}\n",
		"sysctl \"net.ipv4.conf.e%[1]dx.rp_filter\" {\n  value = 0\n  severity = \"warn\"\n  when = %[2]s\n}\n",
		"link \"l%[1]d\" {\n  match { name = \"e%[1]dx\" }\n  mtu = 1000 + %[1]d\n  when = %[2]s\n}\n",
	} {
		work := func(blocks int) float64 {
			var b strings.Builder
			for i := range blocks {
				fmt.Fprintf(&b, format, i, fmt.Sprintf(conditions[i%2], i))
			}
			files := []policy.File{{Name: "p.hcl", Text: []byte(b.String())}}
			return testing.AllocsPerRun(1, func() {
				if diags := policy.Lint(files, known()); diags.HasErrors() {
					t.Fatal(diags)
				}
			})
		}
		few, many := work(10), work(80)
		if many/few > 10 || few/10 > 20_000 {
			t.Errorf("%.0f allocations for 10 blocks, %.0f for 80 such as\n%s", few, many, fmt.Sprintf(format, 1, "..."))
		}
		t.Logf("%.0f allocations for 10 blocks, %.0f for 80", few, many)
	}
}

// TestTrials: Lint finds a mistake that depends on the facts of two blocks, and one in a block whose condition is unknown at first.
func TestTrials(t *testing.T) {
	for _, c := range [][2]string{
		{`sysctl "vm.dirty_bytes" {
		  value = 4096
		  when  = node.memory > 77777777777
		}
		sysctl "vm.dirty_ratio" {
		  value = 10
		  when  = kernel.version == "5.10.3"
		}`, `This happens on a node where kernel.version is "5.10.3" and node.memory is`},
		{`sysctl "kernel.panic" {
		  value = null
		  when  = os.id == "debian"
		}`, "Missing value"},
		{`sysctl "net.ipv4.conf.eth0.rp_filter" {
		  value = 1
		  when  = os.id == "debian"
		}
		link "a" {
		  match { name = "eth0" }
		  sysctl = { "net.ipv4.conf.*.rp_filter" = 0 }
		  when   = node.cpus > 3
		}`, `This happens on a node where node.cpus is 4 and os.id is "debian".`},
		{`sysctl "kernel.panic" { value = [for x in ["a", "b"]: 5 if x == os.id][0] }`, "This happens on a node where os.id is"},
	} {
		got := policy.Lint([]policy.File{{Name: "p.hcl", Text: []byte(c[0])}}, known()).Error()
		if !strings.Contains(got, c[1]) {
			t.Errorf("%s\n%s", c[0], got)
		}
	}
}
