package setting_test

import (
	"context"
	"maps"
	"strings"
	"testing"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/checks/checkstest"
	"nodegate/internal/assert"
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
skipped link.later: no link matches yet
fail`, checkstest.Print(r))
	remedies := ""
	for _, res := range r.Results {
		remedies += res.State.Remedy + "\n"
	}
	checkstest.Equal(t, "remedies", `
this device cannot change it: remove lro from the policy for this kind of link
run `+"`ethtool -k ens5`"+` for the known names; the driver fixes it: remove rx-lro from the policy for this kind of link
another feature that it needs is off, usually a checksum: run `+"`ethtool -k ens5`"+`
this device cannot change it: remove lro from the policy for this kind of link; run `+"`nodegate apply`"+` now; `+"`nodegate install`"+` keeps it across reboots`, remedies)
}

// TestLinkGoneSinceListed: a link is removed or recreated between the listing and the read of its parameters.
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

// TestLinkWithoutIPv6: IPv6 settings are skipped if the kernel removed IPv6 from an interface or has none at all.
func TestLinkWithoutIPv6(t *testing.T) {
	const only = `
		link "router" {
		  match { name = "eth*" }
		  sysctl = { "net.ipv6.conf.*.accept_ra" = 0, "net.ipv6.neigh.*.gc_stale_time" = 60 }
		}`
	both := strings.Replace(only, "{ \"net.ipv6", "{ \"net.ipv4.conf.*.rp_filter\" = 2, \"net.ipv6", 1)
	node := func(sysctls map[string]string) *hosttest.Machine {
		m := checkstest.Node(nil, sysctls)
		m.Links = map[string]*hosttest.Link{"eth0": {MTU: 1500}, "eth1": {MTU: 1200}}
		return m
	}
	inspect := func(h *host.Host, policy string) string {
		r := checks.Inspect(t.Context(), h, checks.Boot, catalog.For(checkstest.Load(t, policy), checks.Boot))
		text := ""
		for _, res := range r.Results {
			text += checkstest.Text(res)
			if len(res.State.Changes) != 0 {
				text += "there are changes\n"
			}
		}
		return text
	}
	v4 := map[string]string{"net/ipv4/conf/eth0/rp_filter": "2", "net/ipv4/conf/eth1/rp_filter": "2"}
	with := func(more map[string]string) map[string]string {
		all := maps.Clone(v4)
		maps.Copy(all, more)
		return all
	}
	checkstest.Equal(t, "a kernel without IPv6", "skipped\nskipped: no matching link has IPv6, and no other setting is required",
		inspect(node(v4).Host(), only))
	checkstest.Equal(t, "a kernel without IPv6, and IPv4 is required too", `
pass
want: net.ipv4.conf.*.rp_filter=2 net.ipv6.conf.*.accept_ra=0 net.ipv6.neigh.*.gc_stale_time=60
got: net.ipv4.conf.*.rp_filter=2 net.ipv6.conf.*.accept_ra=0 net.ipv6.neigh.*.gc_stale_time=60
evidence: eth0: net.ipv4.conf.eth0.rp_filter=2
evidence: eth0: net.ipv6.conf.eth0.accept_ra is skipped: /proc/sys/net/ipv6/conf/eth0 does not exist
evidence: eth0: net.ipv6.neigh.eth0.gc_stale_time is skipped: /proc/sys/net/ipv6/neigh/eth0 does not exist
evidence: eth1: net.ipv4.conf.eth1.rp_filter=2
evidence: eth1: net.ipv6.conf.eth1.accept_ra is skipped: /proc/sys/net/ipv6/conf/eth1 does not exist
evidence: eth1: net.ipv6.neigh.eth1.gc_stale_time is skipped: /proc/sys/net/ipv6/neigh/eth1 does not exist`, inspect(node(v4).Host(), both))
	oneSmall := node(with(map[string]string{"net/ipv6/conf/eth0/accept_ra": "0", "net/ipv6/neigh/eth0/gc_stale_time": "60"}))
	checkstest.Equal(t, "an interface whose MTU is below 1280", `
pass
want: net.ipv6.conf.*.accept_ra=0 net.ipv6.neigh.*.gc_stale_time=60
got: net.ipv6.conf.*.accept_ra=0 net.ipv6.neigh.*.gc_stale_time=60
evidence: eth0: net.ipv6.conf.eth0.accept_ra=0
evidence: eth0: net.ipv6.neigh.eth0.gc_stale_time=60
evidence: eth1: net.ipv6.conf.eth1.accept_ra is skipped: /proc/sys/net/ipv6/conf/eth1 does not exist
evidence: eth1: net.ipv6.neigh.eth1.gc_stale_time is skipped: /proc/sys/net/ipv6/neigh/eth1 does not exist`, inspect(oneSmall.Host(), only))

	// A name that is wrong fails, of the parameter as of the directory.
	for _, name := range []string{"conf.*.acept_ra", "conff.*.accept_ra"} {
		m := node(map[string]string{"net/ipv6/conf/eth0/accept_ra": "0", "net/ipv6/conf/eth1/accept_ra": "0"})
		got := inspect(m.Host(), strings.Replace(only, "conf.*.accept_ra", name, 1))
		wrong := "got: eth0: net.ipv6." + strings.Replace(name, "*", "eth0", 1) + "=no such parameter, "
		assert.True(t, strings.HasPrefix(got, "fail\n") && strings.Contains(got, wrong), "%s: %s", name, got)
	}

	// A replay gives the same result; an older recording without the listing gives the result of its time.
	recording, snapshot := host.Record(node(v4).Host())
	inspect(recording, only)
	checkstest.Equal(t, "a replay", "skipped\nskipped: no matching link has IPv6, and no other setting is required",
		inspect(host.Replay(snapshot), only))
	clear(snapshot.Answers["directories"])
	if got := inspect(host.Replay(snapshot), only); !strings.HasPrefix(got, "fail\n") {
		t.Errorf("an older recording: %s", got)
	}
}

// listedLinks returns an outdated list of links.
type listedLinks struct {
	host.Links
	listed []host.Link
}

func (l listedLinks) List(context.Context) ([]host.Link, error) { return l.listed, nil }
