package lint_test

import (
	"fmt"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/policy"
	"nodegate/policy/lint"
)

// TestGlobContradiction: Lint reports an exact value that contradicts a glob; Load accepts it.
func TestGlobContradiction(t *testing.T) {
	for _, c := range []struct {
		text string
		want string
	}{
		{`sysctl "net.ipv4.conf.all.rp_filter" { value = 0 }
		sysctl "net.ipv4.conf.*.rp_filter" { value = 2 }`, "net.ipv4.conf.*.rp_filter, which matches it too, must be 2 at p.hcl:2"},
		{`sysctl "net.ipv4.conf.all.rp_filter" { value = 2 }
		sysctl "net.ipv4.conf.*.rp_filter" { one_of = [2, 0] }`, ""},
		{`sysctl "net.ipv4.conf.all.rp_filter" { value = 0 }
		sysctl "net.ipv4.conf.*.rp_filter" {
		  value = 2
		  when  = false
		}`, ""},
		{`sysctl "net.ipv4.conf.eth*.rp_filter" { value = 1 }
		sysctl "net.ipv4.conf.*.rp_filter" { value = 2 }`, "net.ipv4.conf.*.rp_filter, which matches it too, must be 2 at p.hcl:2"},
		{`sysctl "net.ipv4.ip_forward" { value = 0 }
		sysctl "net.ipv4.conf.*.rp_filter" { value = 2 }`, ""},
	} {
		files := []policy.File{{Name: "p.hcl", Text: []byte(c.text)}}
		got := lint.Lint(files, policy.Options{}).Error()
		assert.True(t, strings.Contains(got, "Contradiction") == (c.want != "") && strings.Contains(got, c.want), "%s\n%s", c.text, got)
		if _, diags := policy.Load(files, policy.Options{}); diags.HasErrors() {
			t.Errorf("%s\n%v", c.text, diags)
		}
	}
}

// TestLinkContradiction: Lint reports contradicting settings of one interface in any two blocks. It reports nothing if no
// interface need match both blocks.
func TestLinkContradiction(t *testing.T) {
	link := func(name, match, sets string) string {
		return "link \"" + name + "\" {\n  match {\n    " + strings.ReplaceAll(match, "; ", "\n    ") + "\n  }\n  " + sets + "\n}\n"
	}
	for _, c := range []struct {
		text string
		want string
	}{
		{link("a", `name = "eth0"`, "mtu = 1500") + link("b", `name = "eth*"`, "mtu = 9001"), "mtu; link \"a\" (name=eth0) at p.hcl:1"},
		{link("a", `name = "eth*"`, "mtu = 1500") + link("b", `name = "eth0"; kind = "veth"`, "mtu = 9001"), "mtu; link \"a\" (name=eth*) at"},
		{link("a", `kind = "vxlan"`, "mtu = 1450") + link("b", `name = "flannel.1"; kind = "vxlan"`, "mtu = 1500"), "mtu; link \"a\" (kind=vxlan) at"},
		{link("a", `name = "eth0"`, "mtu = 1500") + link("b", `name = "eth*"`, "mtu = 1500"), ""},
		{link("a", `kind = "vxlan"`, "mtu = 1450") + link("b", `default_route = true`, "mtu = 9001"), ""},
		{link("a", `driver = "ena"`, "mtu = 9001") + link("b", `default_route = true`, "mtu = 1500"), "mtu; link \"a\" (driver=ena) at p.hcl:1"},
		{link("a", `name = "e*0"`, "mtu = 9001") + link("b", `name = "*1"`, "mtu = 1500"), ""},
		{link("a", `driver = "ena"`, "mtu = 9001") + link("b", `driver = "virtio_net"; default_route = true`, "mtu = 1500"), ""},
		{link("a", `name = "flannel*"`, "mtu = 1450") + link("b", `default_route = true`, "mtu = 9001"), ""},
		{link("a", `default_route = true`, "mtu = 9001") + link("b", `name = "cali*"`, "mtu = 1450"), ""},
		{link("a", `kind = "veth"`, "mtu = 1450") + link("b", `driver = "ena"`, "mtu = 9001"), ""},
		{link("a", `name = "eth*"; kind = "veth"`, "mtu = 1450") + link("b", `name = "eth*"; kind = "vxlan"`, "mtu = 9001"), ""},
		{link("a", `name = "eth0"`, "mtu = 1500") + link("b", `name = "eth1"`, "mtu = 9001"), ""},
	} {
		files := []policy.File{{Name: "p.hcl", Text: []byte(c.text)}}
		got := lint.Lint(files, policy.Options{}).Error()
		assert.True(t, strings.Contains(got, "Contradiction") == (c.want != "") && strings.Contains(got, c.want), "%s\n%s", c.text, got)
		if _, diags := policy.Load(files, policy.Options{}); diags.HasErrors() {
			t.Errorf("%s\n%v", c.text, diags)
		}
	}
}

// TestAdviceLateFacts: a blocking requirement that depends on a fact which only kubelet makes known would hold a new node for ever;
// Advice reports it.
func TestAdviceLateFacts(t *testing.T) {
	for _, c := range []struct {
		text string
		want bool
	}{
		{"module \"ip_vs\" { when = kube_proxy.mode == \"ipvs\" }", true},
		{"sysctl \"kernel.panic\" {\n  value = 1\n  reason = \"x\"\n  when = os.id == \"debian\" && cni.name == \"cbr0\"\n}", true},
		{"link \"a\" {\n  match { name = \"a\" }\n  mtu = 1500\n  reason = \"x\"\n  when = cni.name == \"cbr0\"\n}", true},
		{"module \"ip_vs\" {\n  severity = \"warn\"\n  when = kube_proxy.mode == \"ipvs\"\n}", false},
		{"module \"ip_vs\" { when = os.id == \"debian\" }", false},
	} {
		p, diags := policy.Load([]policy.File{{Name: "p.hcl", Text: []byte(c.text)}}, policy.Options{})
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		advice := lint.Advice(p)
		late := len(advice) == 1 && strings.Contains(advice[0].Detail, "which is unknown on a new node until kubelet has run")
		assert.True(t, c.want == late && (c.want || len(advice) == 0), "%s\n%q", c.text, advice)
	}
}

// TestOneOfEachName: several blocks of one name, of which one applies, give one requirement and one result.
func TestOneOfEachName(t *testing.T) {
	const on, off, unknown = "os.id == \"debian\"", "os.id != \"debian\"", "cni.name == \"cilium\""
	for _, c := range []struct {
		whens     []string // of three blocks with the values 1, 2, 3
		value     string
		undecided bool
	}{
		{[]string{on, off, off}, "1", false},
		{[]string{off, off, on}, "3", false},
		{[]string{off, off, off}, "1", false},
		{[]string{off, unknown, off}, "2", false},
		{[]string{on, unknown, off}, "1", true},
		{[]string{unknown, off, on}, "3", true},
		{[]string{unknown, unknown, off}, "1", false},
	} {
		text := ""
		for i, when := range c.whens {
			text += fmt.Sprintf("sysctl \"vm.swappiness\" {\n  value = %d\n  when = %s\n}\nmodule \"m\" { when = %s }\n", i+1, when, when)
		}
		fact := func(name string) (any, bool) { return "debian", name == "os.id" }
		p, diags := policy.Load([]policy.File{{Name: "p.hcl", Text: []byte(text)}}, policy.Options{Fact: fact})
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		sysctls, modules := p.EachSysctl(), p.EachModule()
		if len(sysctls) != 1 || len(modules) != 1 || sysctls[0].Value != c.value || (sysctls[0].Undecided != "") != c.undecided {
			t.Errorf("%q: %+v, %+v", c.whens, sysctls, modules)
		}
	}
}

// TestOverrideAll: an override changes the requirement in every built-in policy in use.
func TestOverrideAll(t *testing.T) {
	p, diags := policy.Load([]policy.File{{Name: "p.hcl", Text: []byte(`
		use "flannel-vxlan" {}
		use "calico-vxlan" {}
		override "module.vxlan" { when = false }`)}}, known())
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	found := 0
	for _, m := range p.Modules {
		if m.Name == "vxlan" {
			found++
			assert.True(t, !m.Applies(), "%s applies, required at %s", m.Name, m.Range)
		}
	}
	if found == 0 {
		t.Error("neither policy requires the module: the test proves nothing")
	}
}

// TestSameProbes: equal probes are merged, as other requirements are. If they have a when, the probe that applies is used.
func TestSameProbes(t *testing.T) {
	debian := func(name string) (any, bool) { return "debian", name == "os.id" }
	for _, c := range [][2]string{
		{"probe \"bridge\" { severity = \"warn\" }\nprobe \"bridge\" {}", "block 1s"},
		{"probe \"bridge\" { timeout = \"2s\" }\nprobe \"bridge\" {}", "Probe bridge is reply translated within 1s here, but reply translated within 2s at p.hcl:1"},
		{"probe \"bridge\" { when = os.id == \"debian\" }\nprobe \"bridge\" {\nwhen = false\ntimeout = \"2s\"\n}", "block 1s"},
		{"probe \"bridge\" {\nwhen = false\ntimeout = \"2s\"\n}\nprobe \"bridge\" { when = os.id == \"debian\" }", "block 1s"},
	} {
		text, want := c[0], c[1]
		p, diags := policy.Load([]policy.File{{Name: "p.hcl", Text: []byte(text)}}, policy.Options{Fact: debian})
		got := diags.Error()
		if each := p.EachProbe(); !diags.HasErrors() && len(each) == 1 {
			got = fmt.Sprintf("%s %s", each[0].Severity, each[0].Timeout)
		}
		assert.True(t, strings.Contains(got, want), "%s: %s", text, got)
	}
}
