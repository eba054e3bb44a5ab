package links_test

import (
	"testing"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
)

func TestDefaultRoute(t *testing.T) {
	with := func(routes []string, links ...string) *hosttest.Machine {
		m := checkstest.Node(nil, nil)
		m.Routes, m.Links = routes, map[string]*hosttest.Link{}
		for _, name := range links {
			m.Links[name] = &hosttest.Link{}
		}
		return m
	}
	checkstest.RunOne(t, "links.default-route", checks.Run, []checkstest.Case{
		{What: "one", Node: with([]string{"eth0"}, "eth0"), Want: "pass\nwant: a default route\ngot: a default route\nevidence: default route: eth0"},
		{What: "none", Node: with(nil, "eth0"), Want: "warn\nwant: a default route\ngot: none\n" +
			"remedy: add a default route, or one to the Services' range and --node-ip; a node that needs no other network can have " +
			"`ip link add dummy0 type dummy` with a default route of a high metric, as k3s' documents show"},
		{What: "IPVS", Node: with(nil, "eth0", "kube-ipvs0"), Want: "skipped\nskipped: kube-ipvs0 carries the Services' addresses"},
	})
}

func TestCNIIPv6(t *testing.T) {
	const all = "net/ipv6/conf/all/disable_ipv6"
	node := func(subnet string, sysctls map[string]string) checkstest.Case {
		return checkstest.Case{Host: func(*host.Host) {}, Node: checkstest.Node(map[string]string{
			"/etc/cni/net.d/10-bridge.conflist": `{"plugins": [{"type": "bridge", "ipam": {"ranges": [[{"subnet": "` + subnet + `"}]]}}]}`,
		}, sysctls)}
	}
	wrong := func(value string) string {
		return "warn\nwant: IPv6 for the CNI's range\ngot: IPv6 is off\nevidence: /etc/cni/net.d: fd00:10:244::/64\n" +
			"evidence: /proc/sys/net/ipv6/conf/all/disable_ipv6: " + value + "\nremedy: run `sysctl -w net.ipv6.conf.all.disable_ipv6=0` and " +
			"remove the file that sets it, or give the CNI no IPv6 range"
	}
	var cases []checkstest.Case
	for what, c := range map[string]struct {
		checkstest.Case
		want string
	}{
		"off":             {node("fd00:10:244::/64", map[string]string{all: "1"}), wrong("1")},
		"a kernel's off":  {node("fd00:10:244::/64", nil), wrong("no such parameter")},
		"on":              {node("fd00:10:244::/64", map[string]string{all: "0"}), "pass\nwant: IPv6 for the CNI's range\ngot: IPv6 for the CNI's range"},
		"an IPv4 cluster": {node("10.244.0.0/24", map[string]string{all: "1"}), "skipped\nskipped: the CNI's configuration has no IPv6 range"},
	} {
		c.What, c.Want = what, c.want
		cases = append(cases, c.Case)
	}
	checkstest.RunOne(t, "cni.ipv6-disabled", checks.Run, cases)
}
