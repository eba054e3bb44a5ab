package audit_test

import (
	"net/netip"
	"slices"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/audit"
	"nodegate/internal/audit/path"
	"nodegate/internal/audit/proxy"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
)

// TestUplink: the uplink is the link of the only default route, whatever its name is, unless other
// routes may take its place.
func TestUplink(t *testing.T) {
	links := func(more ...string) map[string]*hosttest.Link {
		all := map[string]*hosttest.Link{"p1p1": {}, "eth0": {}, "flannel.1": {Kind: "vxlan"}}
		for _, name := range more {
			all[name] = &hosttest.Link{Kind: "tun"}
		}
		return all
	}
	for what, c := range map[string]struct {
		node hosttest.Machine
		want string
	}{
		"one default route":  {hosttest.Machine{Links: links(), Routes: []string{"p1p1"}}, "p1p1"},
		"none":               {hosttest.Machine{Links: links()}, ""},
		"two":                {hosttest.Machine{Links: links(), Routes: []string{"eth0", "p1p1"}}, ""},
		"routes of a source": {hosttest.Machine{Links: links(), Routes: []string{"p1p1"}, Routing: []host.RoutingRule{{Table: 100}}}, ""},
		"a VPN":              {hosttest.Machine{Links: links("tun0"), Routes: []string{"p1p1"}}, ""},
	} {
		assert.Equal(t, audit.Uplink(t.Context(), c.node.Host()), c.want, "%s", what)
	}
}

// TestRoutes: a route leads to Pods if its link is a bridge of theirs with Pods. Rules that choose among tables hide which
// routes count, unless the kernel uses the route to the Pods.
func TestRoutes(t *testing.T) {
	hop := func(to, link string) host.Route { return host.Route{To: netip.MustParsePrefix(to), Link: link} }
	node := hosttest.Machine{
		Links: map[string]*hosttest.Link{"eth0": {}, "cni0": {Kind: "bridge"}, "cbr0": {Kind: "bridge"}, "docker0": {Kind: "bridge"},
			"veth1": {Kind: "veth", Master: "cni0"}, "veth2": {Kind: "veth", Master: "docker0"}},
		Paths: []host.Route{hop("0.0.0.0/0", "eth0"), hop("10.244.0.0/24", "cni0"), hop("10.9.0.0/24", "cbr0"), hop("172.17.0.0/16", "docker0"),
			hop("fe80::/64", "cni0"), hop("10.244.1.0/24", "eth0")},
	}
	var opts proxy.Options
	audit.AddNetwork(t.Context(), node.Host(), &opts)
	if len(opts.Routes) != len(node.Paths) || !slices.Equal(opts.PodRoutes, []path.Route{path.Route(node.Paths[1])}) {
		t.Errorf("%+v", opts)
	}
	node.Routing, opts = []host.RoutingRule{{Table: 100}}, proxy.Options{}
	if audit.AddNetwork(t.Context(), node.Host(), &opts); opts.Routes != nil || opts.PodRoutes != nil {
		t.Errorf("with rules: %+v", opts)
	}
	for link, want := range map[string]int{"cni0": 1, "eth1": 0} {
		node.Lookups, opts = map[netip.Addr]string{netip.MustParseAddr("10.244.0.2"): link}, proxy.Options{}
		if audit.AddNetwork(t.Context(), node.Host(), &opts); opts.Routes != nil || len(opts.PodRoutes) != want {
			t.Errorf("with rules, by %s: %+v", link, opts)
		}
	}
	node.IPs, node.Lookups[netip.MustParseAddr("10.244.1.2")] = []netip.Addr{netip.MustParseAddr("10.244.0.3")}, ""
	audit.AddNetwork(t.Context(), node.Host(), &opts)
	for source, lost := range map[string]bool{"10.244.0.2/32": true, "10.244.0.3/32": false} { // the second is the node's: no Pod sends from it
		p := path.Packet{Source: netip.MustParsePrefix(source), In: "cni0", Destination: netip.MustParsePrefix("10.244.1.2/32")}
		assert.Equal(t, opts.Lookup(&p).Lost != "", lost, "%s", source)
	}
}
