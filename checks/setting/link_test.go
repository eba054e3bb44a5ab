package setting_test

import (
	"context"
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

// TestLinkGoneSinceListed: a link that goes, or that is made again, between the list and the read of its parameters.
func TestLinkGoneSinceListed(t *testing.T) {
	p := checkstest.Load(t, `
		link "pods" {
		  match { name = "veth*" }
		  sysctl = { "net.ipv4.conf.*.rp_filter" = "0" }
		}`)
	inspect := func(m *hosttest.Machine, listed ...host.Link) string {
		h := m.Host()
		h.Links = listedLinks{h.Links, listed}
		return checkstest.Print(checks.Inspect(t.Context(), h, checks.Boot, catalog.For(p, checks.Boot)))
	}
	m := &hosttest.Machine{Files: map[string]string{}, Links: map[string]*hosttest.Link{"veth1": {Index: 7}, "veth2": {Index: 8}}}
	m.Sysctl("net/ipv4/conf/veth1/rp_filter", "0")
	checkstest.Equal(t, "gone", "pass link.pods\npass",
		inspect(m, host.Link{Name: "veth1", Index: 7}, host.Link{Name: "veth2", Index: 5}, host.Link{Name: "veth3", Index: 6}))
	checkstest.Equal(t, "there, without the parameter", `
fail link.pods: want net.ipv4.conf.*.rp_filter=0, got veth2: net.ipv4.conf.veth2.rp_filter=no such parameter
fail`, inspect(m, host.Link{Name: "veth2", Index: 8}))
}

// listedLinks are links as they were when they were listed.
type listedLinks struct {
	host.Links
	listed []host.Link
}

func (l listedLinks) List(context.Context) ([]host.Link, error) { return l.listed, nil }
