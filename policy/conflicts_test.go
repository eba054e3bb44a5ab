package policy_test

import (
	"strings"
	"testing"

	"nodegate/policy"
)

// TestGlobContradiction: linting finds an exact value that a glob does not allow; the gate goes on as before.
func TestGlobContradiction(t *testing.T) {
	for _, c := range []struct {
		text string
		want string
	}{
		{`sysctl "net.ipv4.conf.all.rp_filter" { value = 0 }
		sysctl "net.ipv4.conf.*.rp_filter" { value = 2 }`, "net.ipv4.conf.*.rp_filter, which means it too, to be 2 at p.hcl:2"},
		{`sysctl "net.ipv4.conf.all.rp_filter" { value = 2 }
		sysctl "net.ipv4.conf.*.rp_filter" { one_of = [2, 0] }`, ""},
		{`sysctl "net.ipv4.conf.all.rp_filter" { value = 0 }
		sysctl "net.ipv4.conf.*.rp_filter" {
		  value = 2
		  when  = false
		}`, ""},
		{`sysctl "net.ipv4.conf.eth*.rp_filter" { value = 1 }
		sysctl "net.ipv4.conf.*.rp_filter" { value = 2 }`, "net.ipv4.conf.*.rp_filter, which means it too, to be 2 at p.hcl:2"},
		{`sysctl "net.ipv4.ip_forward" { value = 0 }
		sysctl "net.ipv4.conf.*.rp_filter" { value = 2 }`, ""},
	} {
		files := []policy.File{{Name: "p.hcl", Text: []byte(c.text)}}
		got := policy.Lint(files, policy.Options{}).Error()
		if strings.Contains(got, "Contradiction") != (c.want != "") || !strings.Contains(got, c.want) {
			t.Errorf("%s\n%s", c.text, got)
		}
		if _, diags := policy.Load(files, policy.Options{}); diags.HasErrors() {
			t.Errorf("%s\n%v", c.text, diags)
		}
	}
}

// TestOverrideAll: an override is about every built-in policy in use that asks for the same.
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
			if m.Applies() {
				t.Errorf("%s applies, asked for at %s", m.Name, m.Range)
			}
		}
	}
	if found == 0 {
		t.Error("neither asks for it: this tests nothing")
	}
}
