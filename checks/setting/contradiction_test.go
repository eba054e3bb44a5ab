package setting_test

import (
	"strings"
	"testing"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/checks/checkstest"
	"nodegate/checks/setting"
	"nodegate/internal/assert"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

// TestContradictingBlocks: of two requirements for one setting of a link, the first is applied, and the second fails and names both.
// No number of applies writes the second value.
func TestContradictingBlocks(t *testing.T) {
	m := &hosttest.Machine{Routes: []string{"ens5"}, Links: map[string]*hosttest.Link{
		"lo": {MTU: 65536}, "ens5": {Driver: "ena", MTU: 1500}, "ens6": {Driver: "ena", MTU: 1500},
	}, Files: map[string]string{
		"/proc/sys/net/ipv4/conf/ens5/rp_filter": "2\n", "/proc/sys/net/ipv4/conf/ens6/rp_filter": "2\n",
		"/proc/sys/net/ipv4/conf/ens5/arp_ignore": "0\n", "/proc/sys/net/ipv4/conf/ens6/arp_ignore": "0\n",
	}}
	p := checkstest.Load(t, `
		sysctl "net.ipv4.conf.ens5.rp_filter" { value = 0 }
		sysctl "net.ipv4.conf.*.arp_ignore" { value = 1 }
		sysctl "net.ipv4.conf.ens6.arp_ignore" { value = 2 }
		link "cards" {
		  match { driver = "ena" }
		  mtu = 9001
		}
		link "uplink" {
		  match { default_route = true }
		  mtu = 1500
		  sysctl = { "net.ipv4.conf.*.rp_filter" = 1 }
		}`)
	list := catalog.For(p, checks.Boot)
	for range 3 {
		r := checks.Apply(t.Context(), m.Host(), checks.Boot, list, nil)
		failed := map[string]string{}
		for _, res := range r.Results {
			if !res.State.Pass {
				failed[res.Name] = res.State.Got
			}
		}
		require.True(t, len(failed) == 2 && m.Links["ens5"].MTU == 9001, "%v, mtu %d", failed, m.Links["ens5"].MTU)
		for name, want := range map[string]string{
			"link.uplink": "ens5: mtu=9001 (link.uplink at test.hcl:9 requires 1500, but link.cards at test.hcl:5 requires 9001)",
			"sysctl.net.ipv4.conf.*.arp_ignore": "net.ipv4.conf.ens6.arp_ignore is 2 (sysctl.net.ipv4.conf.*.arp_ignore at test.hcl:3 requires 1, " +
				"but sysctl.net.ipv4.conf.ens6.arp_ignore at test.hcl:4 requires 2)",
		} {
			assert.True(t, strings.Contains(failed[name], want), "%s: %q", name, failed[name])
		}
	}
	for _, r := range setting.Links(p) { // as watch does
		s, err := r.Reconcile(t.Context(), m.Host(), host.Link{Name: "ens5", Index: m.Links["ens5"].Index, MTU: 9001}, true, true,
			func() bool { return true })
		assert.True(t, err == nil && !s.Set, "%s: %+v, %v", r.Name(), s, err)
	}
}

// TestLoopbackNamed: a glob matches lo only by its exact name.
func TestLoopbackNamed(t *testing.T) {
	for glob, want := range map[string]int{"l*": 1500, "*": 1500, "lo": 1400} {
		m := &hosttest.Machine{Links: map[string]*hosttest.Link{"lo": {MTU: 1500}}}
		p := checkstest.Load(t, "link \"a\" {\n  match { name = \""+glob+"\" }\n  mtu = 1400\n}")
		checks.Apply(t.Context(), m.Host(), checks.Boot, catalog.For(p, checks.Boot), nil)
		assert.Equal(t, m.Links["lo"].MTU, want, "%s: mtu", glob)
	}
}
