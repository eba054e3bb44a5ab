package policy_test

import (
	"slices"
	"testing"

	"nodegate/internal/assert"
)

// TestInferredModuleUnknown: a module that is needed only by a sysctl with an unknown when depends on the same facts as the sysctl.
func TestInferredModuleUnknown(t *testing.T) {
	for text, want := range map[string]string{
		`when = os.id == "debian"`: "os.id", `severity = os.id == "debian" ? "warn" : "block"`: "", `when = true`: "",
	} {
		p := load(t, "sysctl \"net.ipv4.vs.conntrack\" {\nvalue = 1\n"+text+"\n}")
		assert.True(t, len(p.Modules) == 1 && p.Modules[0].Unknown == want, "%s: %+v", text, p.Modules)
	}
	both := load(t, `
		sysctl "net.ipv4.vs.conntrack" {
		  value = 1
		  when  = os.id == "debian"
		}
		sysctl "net.ipv4.vs.conn_reuse_mode" { value = 0 }`)
	assert.True(t, len(both.Modules) == 1 && both.Modules[0].Applies(), "needed by another sysctl too: %+v", both.Modules)
}

// TestModuleNames: the modules that the policy loads on this node: no module that must not load, or that another node needs.
func TestModuleNames(t *testing.T) {
	p := load(t, `
		module "overlay" {}
		module "sctp" { absent = true }
		module "vxlan" { when = false }`)
	if got := p.ModuleNames(); !slices.Equal(got, []string{"overlay"}) {
		t.Errorf("%v", got)
	}
}
