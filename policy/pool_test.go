package policy_test

import (
	"fmt"
	"strings"
	"testing"

	"nodegate/policy"
)

// TestPool: a base is overridden by the file that uses it, whichever is read first; a variable has limits; an older nodegate is refused
// with one message, whatever else it does not know.
func TestPool(t *testing.T) {
	const base = `use "kubernetes" {}
		variable "n" {
		  type   = number
		  one_of = [10, 20]
		  default = 10
		}
		override "sysctl.kernel.panic" { value = 15 }
		sysctl "vm.swappiness" { value = var.n }
		gate { budget = "30s" }`
	const pool = `use "./base.hcl" {}
		override "sysctl.kernel.panic" { value = 25 }
		override "sysctl.vm.swappiness" { severity = "warn" }
		gate { budget = "60s" }`
	file := func(name, text string) policy.File { return policy.File{Name: name, Text: []byte(text)} }
	both := []policy.File{file("/d/base.hcl", base), file("/d/pool.hcl", pool)}
	for range 2 {
		both[0], both[1] = both[1], both[0]
		o := known()
		o.Vars = map[string]string{"n": "20"}
		p, diags := policy.Load(both, o)
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		var got []string
		for _, r := range p.Effective() {
			if r.Name == "sysctl.kernel.panic" || r.Name == "sysctl.vm.swappiness" || r.Name == "gate" {
				got = append(got, r.Want+" "+string(r.Severity))
			}
		}
		const want = "25 block, 20 warn, kubelet.service waits up to 1m0s, checked every 2s, then hold; repair true block"
		for _, part := range strings.Split(want, ", ")[:2] {
			if !strings.Contains(strings.Join(got, ", "), part) {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		if p.Gate.Budget.String() != "1m0s" {
			t.Error(p.Gate.Budget)
		}
	}
	if got := policy.Bases(both[:1]); len(got)+len(policy.Bases(both[1:])) != 1 {
		t.Errorf("missing bases: %q", got)
	}
	for _, c := range []struct {
		text, version, value, want string
	}{
		{base, "", "30", "--var n:1,1-1: Wrong value; Variable \"n\" must be one of its one_of at p.hcl:4:14"},
		{`use "./p.hcl" {}`, "", "", "must name another *.hcl file"},
		{`use "./../p.hcl" {}`, "", "", "must name another *.hcl file"},
		{`use "./q.hcl" {}`, "", "", "q.hcl does not exist"},
		{"required_version = \">= 1.2\"\nfuture {}", "1.1.9", "", "p.hcl:1,20-28: Too old; The policy requires nodegate >= 1.2; this is 1.1.9. Install a newer one."},
		{"required_version = \">= 1.2\"\nfuture {}", "1.2.0", "", "Unsupported block type"},
		{"required_version = \"new\"\ncheck \"swap\" {}", "1.2.0", "", "Wrong value"},
		{"required_version = \"1.2\"\ncheck \"swap\" {}", "0.0.0~20261127.abc", "", ""},
		{"variable \"n\" {\n default = \"a\"\n min = 5\n}", "", "", "min is for a variable that is a number"},
	} {
		o := known()
		o.Version = c.version
		if c.value != "" {
			o.Vars = map[string]string{"n": c.value}
		}
		_, diags := policy.Load([]policy.File{file("p.hcl", c.text)}, o)
		if c.want == "" && diags.HasErrors() || !strings.Contains(diags.Error(), c.want) || strings.HasPrefix(c.want, "p.hcl:1,20") && len(diags) != 1 {
			t.Errorf("%s\n%v\nwant %s", c.text, diags, c.want)
		}
	}
}

// TestDigest: the same text has the same digest under any name; a built-in policy, a variable and the order of files count.
func TestDigest(t *testing.T) {
	n := 0
	digest := func(value string, texts ...string) string {
		t.Helper()
		o := known()
		o.Vars = map[string]string{"n": value}
		var files []policy.File
		for _, text := range texts {
			n++
			files = append(files, policy.File{Name: fmt.Sprintf("p%d.hcl", n), Text: []byte(text)})
		}
		p, diags := policy.Load(files, o)
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		return p.Digest
	}
	const base, other = "variable \"n\" { default = 1 }\ncheck \"swap\" {}\n", "module \"overlay\" {}\n"
	first := digest("5", base, other)
	seen := map[string]bool{first: true, digest("6", base, other): true, digest("5", other, base): true,
		digest("5", base, other+" "): true, digest("5", base, "use \"kubernetes\" {}\n"): true}
	if len(seen) != 5 || len(first) != 12 || digest("5", base, other) != first {
		t.Errorf("%d digests: %v", len(seen), seen)
	}
}
