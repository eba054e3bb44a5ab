package proxy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"nodegate/internal/ruleset"
)

// Flow is a connection that conntrack sends to an endpoint.
type Flow struct {
	Protocol string // tcp, udp, sctp
	Client   netip.AddrPort
	To       netip.AddrPort // the client's destination: a Service address or a node port
	Own      bool           // To is an address of this node
	Endpoint netip.AddrPort
	Closing  bool // TCP: one side has closed it
	Replied  bool // the endpoint has answered
	Left     time.Duration
}

// StaleFlow is a flow to an endpoint that is in no EndpointSlice of its Service, not even as a
// terminating endpoint, which may keep its flows.
type StaleFlow struct {
	Flow
	Service string // ns/name[:port]
	Empty   bool   // the Service has no endpoints
}

// ID identifies a flow across readings.
func (f Flow) ID() string {
	return fmt.Sprintf("%s %s %s %s", f.Protocol, f.Client, f.To, f.Endpoint)
}

// StaleFlows returns the stale flows. A flow to an address of no Service belongs to another program and is ignored. A flow to an external
// or load balancer address belongs to that address's Service, even if its port is another Service's node port: kube-proxy's rules match
// these addresses first, and node ports only at the node's own addresses. Such flows are not judged.
//
// A TCP connection whose endpoint has answered is never stale. An endpoint that leaves its Service (because a label or selector changes)
// keeps its connections, and kube-proxy deletes only UDP flows (pkg/proxy/conntrack). Conntrack cannot show whether the endpoint has died
// since, because a packet of either side renews the timeout. A flow without an answer is not yet a connection, and each retry of the
// client goes to the same endpoint.
func StaleFlows(flows []Flow, services *Services, endpoints *Endpoints) []StaleFlow {
	type address struct {
		protocol string
		to       netip.AddrPort
	}
	ports, outside := map[address]*apiServicePort{}, map[address]bool{}
	all := services.ports()
	for i := range all {
		p := &all[i]
		if ip, err := netip.ParseAddr(p.ClusterIP); err == nil {
			ports[address{p.Protocol, netip.AddrPortFrom(ip, uint16(p.Port))}] = p
		}
		if p.NodePort != 0 {
			ports[address{p.Protocol, netip.AddrPortFrom(anyAddress(p.Family), uint16(p.NodePort))}] = p
		}
		for ip := range p.outside {
			if ip, err := netip.ParseAddr(ip); err == nil {
				outside[address{p.Protocol, netip.AddrPortFrom(ip, uint16(p.Port))}] = true
			}
		}
	}
	known := map[*apiServicePort]map[string]bool{}
	var stale []StaleFlow
	for _, f := range flows {
		family := ruleset.IPv4
		if f.To.Addr().Is6() {
			family = ruleset.IPv6
		}
		port := ports[address{f.Protocol, f.To}]
		if port == nil && f.Own && !outside[address{f.Protocol, f.To}] {
			port = ports[address{f.Protocol, netip.AddrPortFrom(anyAddress(family), f.To.Port())}]
		}
		if port == nil || f.Closing || f.Protocol == "tcp" && f.Replied {
			continue
		}
		if known[port] == nil {
			known[port] = map[string]bool{}
			for _, ep := range endpoints.of(keyOf(&port.Service)) {
				known[port][ep.address] = true
			}
		}
		if all := known[port]; !all[f.Endpoint.String()] {
			stale = append(stale, StaleFlow{f, port.Name, len(all) == 0})
		}
	}
	return stale
}

// anyAddress returns the placeholder for every address of the node.
func anyAddress(family string) netip.Addr {
	if family == ruleset.IPv6 {
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}

// FlowFindings returns one finding for each pair of Service address and stale endpoint.
func FlowFindings(stale []StaleFlow) []Finding {
	groups := map[string][]StaleFlow{}
	var order []string
	for _, f := range stale {
		key := strings.Join([]string{f.Service, f.Protocol, f.To.String(), f.Endpoint.String()}, " ")
		if groups[key] == nil {
			order = append(order, key)
		}
		groups[key] = append(groups[key], f)
	}
	slices.Sort(order)
	out := NewCollector()
	for _, key := range order {
		group := groups[key]
		f := group[0]
		family, option := ruleset.IPv4, ""
		if f.To.Addr().Is6() {
			family, option = ruleset.IPv6, "-f ipv6 "
		}
		why := "which is in no EndpointSlice of the Service"
		if f.Empty {
			why = "but the Service has no endpoints"
		}
		out.Add(Finding{Name: "kubeproxy.conntrack.stale-flow", Service: f.Service, Family: family,
			Message: fmt.Sprintf("traffic to %s/%s still goes to %s, %s; flows in use: %d", f.To, f.Protocol, f.Endpoint, why, len(group)),
			Remedy: fmt.Sprintf("delete these flows: `conntrack -D %s-p %s --orig-dst %s --orig-port-dst %d --reply-src %s "+
				"--reply-port-src %d`", option, f.Protocol, f.To.Addr(), f.To.Port(), f.Endpoint.Addr(), f.Endpoint.Port())})
	}
	return out.List
}
