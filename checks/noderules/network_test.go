package noderules_test

import (
	"testing"

	"nodegate/checks/noderules"
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
		if got := noderules.Uplink(t.Context(), c.node.Host()); got != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
}
