package catalog_test

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/internal/assert"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
	"nodegate/internal/verdict"
	"nodegate/policy"
)

// TestEveryBuiltinRequirementFails: each module, sysctl and link of each built-in policy fails on a node that does not meet it.
func TestEveryBuiltinRequirementFails(t *testing.T) {
	facts := map[string]any{"kernel.version": "5.4.0", "node.cpus": int64(2)}
	known := policy.Options{Checks: catalog.Known().Checks, Vars: map[string]string{},
		Fact: func(name string) (any, bool) { v, ok := facts[name]; return v, ok }}
	tested := map[string]bool{}
	for _, name := range policy.Builtins() {
		f, err := policy.Builtin(name)
		require.NoError(t, err)
		options := known
		if name == "kubeadm" {
			options.Vars = map[string]string{"ipv6": "true"}
		}
		p, diags := policy.Load([]policy.File{f}, options)
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		for _, broken := range []struct {
			node  *hosttest.Machine
			kinds []string
		}{{withoutModules(), []string{"module"}}, {wrongNode(p), []string{"sysctl", "link"}}} {
			for _, r := range checks.Inspect(t.Context(), broken.node.Host(), checks.Boot, catalog.For(p, checks.Boot)).Results {
				kind, _, _ := strings.Cut(r.Name, ".")
				if slices.Contains(catalog.Known().Checks, r.Name) || !slices.Contains(broken.kinds, kind) {
					continue
				}
				tested[r.Name] = true
				if r.Verdict != verdict.Fail && r.Verdict != verdict.Warn {
					t.Errorf("%s: %s is %s: %v %s", name, r.Name, r.Verdict, r.Err, r.State.Skip)
				}
			}
		}
	}
	assert.True(t, len(tested) >= 30, "only %d requirements", len(tested))
}

// withoutModules returns a machine without installed kernel modules.
func withoutModules() *hosttest.Machine {
	return &hosttest.Machine{Kernel: "5.4.0", Files: map[string]string{"/lib/modules/5.4.0/modules.dep": ""}}
}

// wrongNode returns a machine on which every parameter of the policy is wrong, with links of every kind that the policy
// names, and every offload inverted.
func wrongNode(p *policy.Policy) *hosttest.Machine {
	m := withoutModules()
	m.Links = map[string]*hosttest.Link{"lo": {}}
	for _, s := range p.Sysctls {
		m.Sysctl(strings.ReplaceAll(string(s.Key), "*", "0a"), "-7")
	}
	for _, l := range p.Links {
		name := cmp.Or(strings.ReplaceAll(l.Match.Name, "*", "0"), "eth0")
		link := &hosttest.Link{Kind: l.Match.Kind, Driver: l.Match.Driver, Features: map[string]host.Feature{}}
		for _, o := range l.Of(policy.Offload) {
			for _, f := range o.Features {
				link.Features[f] = host.Feature{Available: true, Requested: o.Value != "on", Active: o.Value != "on"}
			}
		}
		for _, s := range l.Of(policy.LinkSysctls) {
			m.Sysctl(strings.ReplaceAll(s.Name, "*", name), "-7")
		}
		m.Links[name] = link
		m.Routes = append(m.Routes, name)
	}
	return m
}
