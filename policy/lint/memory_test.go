package lint_test

import (
	"fmt"
	"strings"
	"testing"

	"nodegate/policy"
	"nodegate/policy/lint"
)

// TestMemory: Lint reports a number that takes the memory of a node, in the parameter's unit, and a number that the kernel refuses.
func TestMemory(t *testing.T) {
	for _, c := range []struct {
		key, body string
		exit      string // error, warning or ""
		want      string
	}{
		{"vm.min_free_kbytes", "value = 1073741824", "error", "is in kB: 1073741824 is 1024 GiB, and the kernel keeps it free"},
		{"vm.min_free_kbytes", "value = 16777216", "warning", "is 16 GiB"},
		{"vm.min_free_kbytes", "min = 16777216\n when = node.memory >= 512 * 1024 * 1024 * 1024", "", ""},
		{"vm.min_free_kbytes", "value = 1048576\n when = node.memory < 4 * 1024 * 1024 * 1024", "error", "of the memory of a node with"},
		{"vm.min_free_kbytes", "value = node.memory", "error", "more than 50 % of the memory of a node with"},
		{"vm.min_free_kbytes", "min = max(67584, floor(node.memory / 1024 / 100))", "", ""},
		{"vm.min_free_kbytes", "max = 1073741824", "", ""},
		{"vm.nr_hugepages", "value = floor(node.memory / 2097152)", "warning", "pages of at least 2 MiB"},
		{"vm.nr_hugepages", "value = floor(node.memory / 4194304)", "", ""},
		{"vm.nr_hugepages", "value = 1073741824", "error", "nothing else can use it"},
		{"vm.nr_hugepages", "value = 1024", "", ""},
		{"vm.dirty_bytes", "value = 1099511627776", "warning", "writers never wait"},
		{"vm.dirty_bytes", "value = 268435456", "", ""},
		{"vm.min_free_kbytes", `value = "0x40000000"`, "error", "1073741824 is 1024 GiB"},
		{"vm.min_free_kbytes", "one_of = [1073741824, 67584]", "error", "1073741824 is 1024 GiB"},
		{"vm.min_free_kbytes", "one_of = [67584, 1073741824]", "", ""},
		{"vm.nr_hugepages_mempolicy", "value = 5000000", "error", "it is vm.nr_hugepages"},
		{"kernel.pid_max", "one_of = [400, 65536]", "error", "A node needs at least 32768"},
		{"kernel.pid_max", `value = "0x190"`, "error", "A node needs at least 32768"},
		{"kernel.pid_max", "value = 4194305", "error", "accepted: 301 to 4194304"},
		{"kernel.pid_max", "min = 4194304", "", ""},
		{"kernel.pid_max", "min = 100000 * node.cpus", "error", "accepted: 301 to 4194304"},
		{"kernel.pid_max", "min = max(65536, 1024 * node.cpus)", "", ""},
		{"kernel.threads-max", "min = 4194304", "", ""},
		{"kernel.threads-max", "value = 2147483647", "error", "accepted: 1 to 1073741823"},
		{"fs.nr_open", "value = 2147483584", "", ""},
		{"fs.nr_open", "value = 2147483647", "error", "accepted: 64 to 2147483584"},
		{"fs.file-max", "value = 9223372036854775807", "", ""},
	} {
		text := fmt.Sprintf("sysctl %q {\n %s\n}\n", c.key, c.body)
		diags := lint.Lint([]policy.File{{Name: "p.hcl", Text: []byte(text)}}, known())
		exit := ""
		if len(diags) > 0 {
			exit = "warning"
		}
		if diags.HasErrors() {
			exit = "error"
		}
		if exit != c.exit || len(diags) > 1 || len(diags) == 1 && !strings.Contains(diags[0].Detail, c.want) {
			t.Errorf("%s%s: %v", text, exit, diags)
		}
	}
}
