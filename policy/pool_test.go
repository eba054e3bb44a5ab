package policy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"

	"nodegate/internal/assert"
	"nodegate/policy"
	"nodegate/policy/lint"
)

// TestRanks: of three files in a row, the one that uses another counts, whichever is read first and wherever its use block stands.
func TestRanks(t *testing.T) {
	const link = `link "up" {
  match { name = "eth*" }
  mtu = `
	for _, c := range []struct{ name, root, base, pool, want string }{
		{"gate", `gate { budget = "20s" }`, `gate { enforce = "warn" }`, "", `kubelet.service is never held (enforce = "warn"): the gate only reports`},
		{"gate", `gate { on_timeout = "release" }`, `gate { unit = "k3s.service" }`, `gate { budget = "20s" }`,
			"kubelet.service is held until the node passes; 20s for a start, checked every 2s, repair true"},
		{"gate", `gate { unit = "k3s.service" }`, "", "", "k3s.service is held until the node passes; 2m0s for a start"},
		{"publish", `publish { condition = "A" }`, `publish { condition = "B" }`, `publish { condition = "C" }`, "condition C of "},
		{"publish", `publish { condition = "A" }`, `publish { condition = "B" }`, "", "condition B of "},
		{"audit", `audit { settle = "1s" }`, `audit { settle = "2s" }`, `audit { settle = "3s" }`, "reported after 3s"},
		{"audit", `audit { settle = "1s" }`, `audit { settle = "2s" }`, "", "reported after 2s"},
		{"link.flannel", `use "flannel-vxlan" {}`, `variable "flannel_checksum_fixed" { default = "9.9" }`, "", "=off"},
		{"link.flannel", `use "flannel-vxlan" {}`, `variable "flannel_checksum_fixed" { default = "6.0" }`,
			`variable "flannel_checksum_fixed" { default = "9.9" }`, "=off"},
		{"sysctl.vm.swappiness", "variable \"n\" { default = 1 }\nsysctl \"vm.swappiness\" { value = var.n }", `variable "n" { default = 2 }`,
			`variable "n" { default = 3 }`, "3"},
		{"sysctl.vm.swappiness", "variable \"n\" { default = 1 }\nsysctls { values = { \"vm.swappiness\" = var.n } }",
			`variable "n" { default = 5 }`, `override "sysctl.vm.swappiness" { max = var.n }`, "at most 5"},
		{"sysctl.kernel.panic", `override "sysctl.kernel.panic" { value = 15 }`, `override "sysctl.kernel.panic" { value = 25 }`,
			`override "sysctl.kernel.panic" { value = 35 }`, "35"},
		{"sysctl.kernel.panic", `override "sysctl.kernel.panic" { value = 15 }`, `override "sysctl.kernel.panic" { value = 25 }`, "", "25"},
		{"module.sctp", `module "sctp" {}`, `override "module.sctp" { severity = "warn" }`, `override "module.sctp" { absent = true }`, "not loadable"},
		{"sysfs.kernel/mm/ksm/run", `sysfs "kernel/mm/ksm/run" { value = 1 }`, `override "sysfs.kernel/mm/ksm/run" { value = 0 }`,
			`override "sysfs.kernel/mm/ksm/run" { value = 2 }`, "2"},
		{"link.up", link + "1300\n}", `override "link.up" { mtu = 1400 }`, `override "link.up" { mtu = 1500 }`, "mtu=1500"},
		{"link.up", link + "1300\n}", "", `override "link.up" { mtu = 1500 }`, "mtu=1500"},
		{"exec.a", `check "exec.a" { command = ["/a"] }`, `override "exec.a" { command = ["/b"] }`, `override "exec.a" { timeout = "9s" }`,
			"/b exits with status 0 within 9s"},
		{"conntrack.full", `override "conntrack.full" { when = true }`, `override "conntrack.full" { when = false }`,
			`override "conntrack.full" { when = true }`, "inspected"},
		{"sysctl.kernel.no_such", `lint { allow_names = ["kernel.no_such"] }`, `lint { allow = ["unused-variable:n"] }`,
			"variable \"n\" { default = 1 }\nsysctl \"kernel.no_such\" {\n  value = 1\n  reason = \"r\"\n}", "1"},
	} {
		for order := range 12 {
			texts := []string{c.root, c.base, c.pool}
			for i, use := range []string{`use "kubernetes" {}`, `use "./root.hcl" {}`, `use "./base.hcl" {}`} {
				texts[i] = strings.Join([]string{use, texts[i], use}[order%2:][:2], "\n")
			}
			files := []policy.File{{Name: "root.hcl", Text: []byte(texts[0])}, {Name: "base.hcl", Text: []byte(texts[1])}, {Name: "pool.hcl", Text: []byte(texts[2])}}
			first := order / 2 % 3
			files[0], files[first] = files[first], files[0]
			if order >= 6 {
				files[1], files[2] = files[2], files[1]
			}
			o := known()
			o.Fact = func(name string) (any, bool) { return "6.8.0", name == "kernel.version" }
			p, diags := policy.Load(files, o)
			if order == 0 && (c.name == "gate" || strings.HasPrefix(c.base, "lint")) {
				diags = append(diags, lint.Lint(files, o)...)
			}
			i := slices.IndexFunc(p.Effective(), func(r policy.Requirement) bool { return r.Name == c.name })
			if len(diags) > 0 || i < 0 || !strings.Contains(p.Effective()[i].Want, c.want) {
				t.Errorf("%s, order %d: %v\n%+v\nwant %s", c.name, order, diags, p.Effective()[max(i, 0)], c.want)
			}
		}
	}
}

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
		const want = "25 block, 20 warn, kubelet.service"
		for _, part := range strings.Split(want, ", ")[:2] {
			assert.True(t, strings.Contains(strings.Join(got, ", "), part), "got %q, want %q", got, want)
		}
		if p.Gate.Budget.String() != "1m0s" {
			t.Error(p.Gate.Budget)
		}
	}
	own := func(value, absent string) string {
		return "module \"sctp\" { absent = " + absent + " }\nsysctl \"vm.swappiness\" { value = " + value + " }\n"
	}
	for _, pool := range []string{own("60", "true") + `use "./base.hcl" {}`, `use "./base.hcl" {}` + "\n" + own("60", "true")} {
		for i := range both {
			both[i], both[1-i] = file("base.hcl", own("10", "false")), file("pool.hcl", pool)
			_, diags := policy.Load(both, known())
			for _, want := range []string{`{ absent = true }`, `{ value = 60 }`} {
				if !slices.ContainsFunc(diags, func(d *hcl.Diagnostic) bool {
					return d.Subject.Filename == "pool.hcl" && strings.HasSuffix(d.Detail, want)
				}) {
					t.Errorf("%v\nwant an override %s", diags, want)
				}
			}
		}
	}
	circle := []policy.File{file("/d/pool.hcl", pool), file("/d/base.hcl", base+"\nuse \"./pool.hcl\" {}")}
	if _, diags := policy.Load(circle, known()); !strings.Contains(diags.Error(), "Bases in a circle") {
		t.Error(diags)
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
		{`use "./d/q.hcl" {}`, "", "", "must name another *.hcl file"},
		{`use "./q.hcl" {}`, "", "", "q.hcl does not exist"},
		{"required_version = \">= 1.2\"\nfuture {}", "1.1.9", "", "p.hcl:1,20-28: Too old; The policy requires nodegate >= 1.2; this is 1.1.9. Install a newer one."},
		{"required_version = \">= 1.2\"\nfuture {}", "1.2.0", "", "Unsupported block type"},
		{"required_version = \">=1.2.0\"\ncheck \"swap\" {}", "1.2.0", "", ""},
		{"required_version = \"new\"\ncheck \"swap\" {}", "1.2.0", "", "Wrong value"},
		{"required_version = \"1.2\"\ncheck \"swap\" {}", "1.2.0~dev.20261127.abc", "", ""},
		{"variable \"n\" {\n default = \"a\"\n min = 5\n}", "", "", "min is for a variable that is a number"},
	} {
		o := known()
		o.Version = c.version
		if c.value != "" {
			o.Vars = map[string]string{"n": c.value}
		}
		files, isOld := []policy.File{file("p.hcl", c.text)}, strings.HasPrefix(c.want, "p.hcl:1,20")
		if isOld { // the mistakes of the files beside it are not reported
			const wrong = "use \"./none.hcl\" {}\nmodule \"a\" { absent = 5 }\nvariable \"x\" { type = nonsense }\nfuture {}"
			files = []policy.File{file("a.hcl", wrong), files[0], file("z.hcl", wrong)}
		}
		_, diags := policy.Load(files, o)
		assert.True(t, (c.want != "" || !diags.HasErrors()) && strings.Contains(diags.Error(), c.want) && (!isOld || len(diags) == 1),
			"%s\n%v\nwant %s", c.text, diags, c.want)
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
	assert.True(t, len(seen) == 5 && len(first) == 12 && digest("5", base, other) == first, "%d digests: %v", len(seen), seen)
}
