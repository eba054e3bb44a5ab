package settle_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"nodegate/internal/audit/proxy"
	"nodegate/internal/ruleset"
)

// TestSchedulesIPVS is TestSchedules in IPVS mode, in which the rules contain no Service names.
func TestSchedulesIPVS(t *testing.T) { testSchedules(t, 50, true) }

// virtualServers returns the virtual servers of a Service. Two Services may share a load balancer
// address.
func (c *cluster) virtualServers(i int, endpoints []string, k kind) []ruleset.VirtualServer {
	add := func(list []ruleset.VirtualServer, ip string, port int) []ruleset.VirtualServer {
		s := ruleset.VirtualServer{Address: netip.AddrPortFrom(netip.MustParseAddr(ip), uint16(port)), Protocol: "tcp", Scheduler: "rr",
			Affinity: k.affinity}
		for _, e := range endpoints {
			s.Servers = append(s.Servers, ruleset.RealServer{Address: netip.MustParseAddrPort(address(e) + ":80"), Weight: 1})
		}
		if c.IntN(3) == 0 { // a draining endpoint
			s.Servers = append(s.Servers, ruleset.RealServer{Address: netip.MustParseAddrPort("10.0.0.254:80")})
		}
		return append(list, s)
	}
	list := add(nil, fmt.Sprintf("10.96.0.%d", i+1), 80)
	if k.vip != "" {
		list = add(list, k.vip, 80)
	}
	if k.policy != "" {
		list = add(list, "172.18.0.2", 30080+i)
	}
	return list
}

// called returns the name of a Service, even if a finding contains only its place.
func (c *cluster) called(service string) string {
	for i, name := range c.names {
		if service == fmt.Sprintf("10.96.0.%d:80/tcp", i+1) || service == fmt.Sprintf("172.18.0.2:%d/tcp", 30080+i) {
			return name
		}
	}
	return service
}

func judgeIPVS(virtual *ruleset.IPVS) proxy.Judgment {
	last := map[netip.AddrPort]ruleset.VirtualServer{} // if two Services share a place, the last one counts
	for _, s := range virtual.Servers {
		last[s.Address] = s
	}
	virtual.Servers = slices.Collect(maps.Values(last))
	virtual.Bound, virtual.Local = map[netip.Addr]bool{}, map[netip.Addr]bool{}
	for _, s := range virtual.Servers {
		ip := s.Address.Addr()
		virtual.Local[ip] = true
		virtual.Bound[ip] = s.Address.Port() == 80
	}
	save, err := ruleset.Parse("", strings.NewReader("*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-NODE-PORT - [0:0]\nCOMMIT\n"))
	if err != nil {
		panic(err)
	}
	return proxy.Judge([]*ruleset.Set{save, {IPVS: virtual}}, proxy.Options{})
}
