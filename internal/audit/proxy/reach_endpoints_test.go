package proxy

import (
	"net/netip"
	"testing"

	"nodegate/internal/audit/path"
)

// TestRangeOf: routes show the Pods' range of a node and the link to it. A route to one Pod does not.
func TestRangeOf(t *testing.T) {
	prefix := netip.MustParsePrefix
	local := path.Route{To: prefix("10.244.0.0/24"), Link: "cni0"}
	routes := path.NewRoutes([]path.Route{{To: prefix("0.0.0.0/0"), Link: "eth0"}, local, {To: prefix("10.244.1.0/24"), Link: "flannel.1"},
		{To: prefix("10.244.2.7/32"), Link: "cali7"}, {To: prefix("10.244.2.0/26")}, {To: prefix("10.0.0.0/8"), Link: "eth1"}})
	r := &reach{pods: prefix("10.244.0.0/16"), local: local, routes: routes}
	for address, want := range map[string]struct{ all, link string }{
		"10.244.0.9":   {"10.244.0.0/24", "cni0"},
		"10.244.1.9":   {"10.244.1.0/24", "flannel.1"},
		"10.244.2.7":   {"10.244.2.0/26", ""},
		"10.244.2.9":   {"10.244.2.0/26", ""},
		"10.244.3.129": {"10.244.3.128/26", "eth1"}, // the route is to more than Pods
		"192.0.2.1":    {"invalid Prefix", ""},
	} {
		if all, link := r.rangeOf(netip.MustParseAddr(address)); all.String() != want.all || link != want.link {
			t.Errorf("%s: %s %q, want %s %q", address, all, link, want.all, want.link)
		}
	}
	six := &reach{pods: prefix("fd00:244::/56"), routes: path.NewRoutes(nil)}
	if all, link := six.rangeOf(netip.MustParseAddr("fd00:244:0:1::9")); all != prefix("fd00:244:0:1::/122") || link != "" {
		t.Errorf("%s %q", all, link)
	}
}

// TestReachSomeEndpoints: a rule for one node's Pods loses a part of a Service's connections.
func TestReachSomeEndpoints(t *testing.T) {
	got := ""
	text := editedSave(t, readFile(t, "flannel-docker.txt"), before(beforeForward, "-A FORWARD -d 10.244.1.0/24 -j DROP"),
		sub("--to-destination 10.244.1.6:3000", "10.244.1.6:3000", "10.244.9.6:3000"))
	for _, f := range Judge(mustParse(t, text), Options{}).Findings {
		if f.Name == "kubeproxy.way.service" {
			got += f.Service + ": " + f.Message
		}
	}
	if want := "default/service1:downloader: packets from Pods to some endpoints of this Service: chain FORWARD of table filter, line 35 loses them (DROP)"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
