package setting_test

import (
	"testing"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/checks/checkstest"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
)

func TestLinkAnswers(t *testing.T) {
	m := &hosttest.Machine{Files: map[string]string{}, Routes: []string{"ens5"}, Links: map[string]*hosttest.Link{
		"ens5": {Driver: "ena", MTU: 9001, Features: map[string]host.Feature{
			"tx-checksum-ipv4":       {Available: true, Requested: true, Active: true},
			"tx-checksum-ip-generic": {},
			"rx-lro":                 {NeverChanged: true},
			"tx-tcp-segmentation":    {Available: true, Requested: true},
		}},
		"ens6": {Driver: "ena", MTU: 1500},
		"cni0": {Kind: "bridge", MTU: 1500},
	}}
	p := checkstest.Load(t, `
		link "group"   {
		  match {
		    driver        = "ena"
		    default_route = true
		  }
		  offload = { tx = true }
		}
		link "fixed"   {
		  match { name = "ens5" }
		  offload = { lro = true }
		}
		link "named"   {
		  match { name = "ens[5]" }
		  offload = { rx-lro = true, rx-gro = true }
		}
		link "blocked" {
		  match { default_route = true }
		  offload = { tx-tcp-segmentation = true }
		}
		link "several" {
		  match { driver = "ena" }
		  offload = { lro = true }
		  mtu     = 1400
		}
		link "later"   {
		  match { kind = "vxlan" }
		  mtu = 1450
		}`)
	r := checks.Inspect(t.Context(), m.Host(), checks.Boot, catalog.For(p, checks.Boot))
	checkstest.Equal(t, "report", `
pass link.group
fail link.fixed: want lro=on, got ens5: lro=fixed by the driver
fail link.named: want rx-gro=on rx-lro=on, got ens5: rx-gro=unknown to this kernel, ens5: rx-lro=off [fixed]
fail link.blocked: want tx-tcp-segmentation=on, got ens5: tx-tcp-segmentation=off [requested on]
fail link.several: want lro=on mtu=1400, got ens5: lro=fixed by the driver, ens5: mtu=9001, ens6: lro=fixed by the driver, ens6: mtu=1500
skip link.later: no link matches yet
fail`, checkstest.Print(r))
	remedies := ""
	for _, res := range r.Results {
		remedies += res.State.Remedy + "\n"
	}
	checkstest.Equal(t, "remedies", `
this device cannot change it: leave lro out for this kind of link
run: ethtool -k ens5 for the names it knows; the driver fixes it: leave rx-lro out for this kind of link
another feature that it needs is off, most often a checksum: ethtool -k ens5
this device cannot change it: leave lro out for this kind of link; run: nodegate apply; nodegate install makes it last`, remedies)
}
