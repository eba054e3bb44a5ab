package replay

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/replica"
	"nodegate/internal/ruleset"
)

// Service is one port of a Service, as kube-proxy's rules know it.
type Service struct {
	Name      string
	Protocol  uint8
	Addresses []netip.AddrPort // for every sender: of the cluster
	External  []netip.AddrPort // for other machines too: load balancers, external addresses, node ports
	Endpoints []netip.AddrPort // to which the addresses of the cluster lead
	Here      []netip.AddrPort // to which External leads; nil: to Endpoints
	Port      uint16           // of the node: Observe adds its addresses to External; 0 without a node port
}

// Cluster is what senders and addresses are taken from.
type Cluster struct {
	Services []Service
	Servers  []netip.AddrPort // of the API
	Page     netip.AddrPort   // of kube-proxy on this node

	HostPorts []ruleset.HostPort // in the rules; Observe adds those of the container runtime

	// What the capture shows.
	Pods    []replica.Pod    // of this node
	Nodes   []netip.Addr     // another node, if there is an overlay network
	Node    []netip.AddrPort // the node's own ports: kubelet's, and by UDP the overlay network's
	Outside []netip.AddrPort // machines outside the cluster, one of each family
	Own     []netip.Addr
}

// Kinds of destinations.
const (
	ToService  = "service"
	ToEndpoint = "endpoint"
	ToOutside  = "outside"
	ToServer   = "API server"
	ToKubelet  = "kubelet"
	ToOverlay  = "overlay network"
	ToPage     = "kube-proxy's page"
	ToPort     = "port of the node"
	ToHostPort = "hostPort"
)

const kubelet = 10250

// Observe adds what a capture of the node shows.
func (c *Cluster) Observe(n *replica.Capture) {
	var known []netip.Addr
	for i := range c.Services {
		for _, e := range c.Services[i].Endpoints {
			known = append(known, e.Addr())
		}
	}
	ofPods := c.observeHostPorts(n)
	c.Pods = n.Pods(append(ofPods, known...), maxPods)
	// Root name servers: hardly a list bans them.
	for _, to := range []string{"198.41.0.4:443", "[2001:503:ba3e::2:30]:443"} {
		at := netip.MustParseAddrPort(to)
		own, ok := n.Uplink(at.Addr().Is6())
		if !ok || !slices.ContainsFunc(c.Pods, func(p replica.Pod) bool {
			return slices.ContainsFunc(p.Addresses, func(a netip.Addr) bool { return a.Is6() == at.Addr().Is6() })
		}) && at.Addr().Is6() {
			continue
		}
		c.Outside = append(c.Outside, at)
		if slices.ContainsFunc(n.Listeners, func(l replica.Listener) bool { return l.At.Port() == kubelet }) {
			c.Node = append(c.Node, netip.AddrPortFrom(own, kubelet))
		}
		for i := range c.Services {
			if s := &c.Services[i]; s.Port > 0 && s.Endpoints[0].Addr().Is6() == own.Is6() {
				s.External = append(s.External, netip.AddrPortFrom(own, s.Port))
			}
		}
	}
	var ports []uint16
	ports, c.Nodes = n.Overlays()
	for _, port := range ports {
		if own, ok := n.Uplink(len(c.Nodes) > 0 && c.Nodes[0].Is6()); ok {
			c.Node = append(c.Node, netip.AddrPortFrom(own, port))
		}
	}
	c.Nodes = c.Nodes[:min(1, len(c.Nodes))]
	c.Own = n.Own()
}

// observeHostPorts adds the host ports of the container runtime, gives each an address of the node, and returns the first of their Pods.
func (c *Cluster) observeHostPorts(n *replica.Capture) (pods []netip.Addr) {
	var list []ruleset.HostPort
	for _, p := range append(n.HostPorts(replica.CachedResults), c.HostPorts...) {
		if own, ok := n.Uplink(p.To.Addr().Is6()); ok && p.At.Addr().IsUnspecified() {
			p.At = netip.AddrPortFrom(own, p.At.Port())
		}
		if !slices.Contains(list, p) && slices.Contains(n.Own(), p.At.Addr()) {
			list = append(list, p)
		}
		if !slices.Contains(pods, p.To.Addr()) && len(pods) < maxPods/2 {
			pods = append(pods, p.To.Addr())
		}
	}
	c.HostPorts = list
	return pods
}

// Misled returns the ports of the node that portmap leads to addresses at which the node has asked for a Pod in vain.
func (c *Cluster) Misled(n *replica.Capture) (list []string) {
	for _, p := range c.HostPorts {
		if slices.Contains(n.Silent, p.To.Addr()) {
			list = append(list, fmt.Sprintf("portmap leads port %d/%s to %s, where no Pod answers", p.At.Port(), Protocol(p.Protocol), p.To))
		}
	}
	return list
}

// Astray returns the Pods of this node, as kube-proxy's rules of external traffic know them, to which the route leaves by an uplink.
func (c *Cluster) Astray(n *replica.Capture) (list []string) {
	for _, s := range c.Services {
		for _, e := range s.Here {
			if link := n.LeavesBy(e.Addr()); link != "" && !slices.Contains(c.Own, e.Addr()) {
				list = append(list, fmt.Sprintf("%s, a Pod of this node (%s), whose route leaves by %s (`ip route get`)", e.Addr(), s.Name, link))
			}
		}
	}
	return list
}

// Bounds of what stands for all.
const (
	maxPods = 6
	full    = " with full packets"
	dns     = 53 // clients ask the Service: rules that send what asks another server elsewhere are meant so
)

// Flows returns the flows of a cluster: each kind of sender to each kind of address.
func (c *Cluster) Flows(masquerades func(is6 bool) bool) (list []Flow) {
	here := map[netip.Addr]bool{}
	var senders []From
	for _, p := range c.Pods {
		for _, a := range p.Addresses {
			here[a] = true
			senders = append(senders, From{Pod: true, Address: a})
		}
	}
	own := From{Node: true}
	add := func(kind, name string, from From, to netip.AddrPort, protocol uint8, want []netip.AddrPort) *Flow {
		if !from.Node && from.Address.Is4() != to.Addr().Is4() {
			return nil
		}
		who := "node"
		if !from.Node {
			who = from.Address.String()
		}
		f := Flow{Name: fmt.Sprintf("%s to %s %s", who, name, to), Kind: kind, From: from, To: to, Protocol: protocol, Want: want,
			Big: strings.HasSuffix(name, full)}
		if kind == ToService || kind == ToEndpoint {
			f.Service = strings.TrimSuffix(strings.TrimPrefix(name, anEndpoint), full)
		}
		if slices.ContainsFunc(list, func(g Flow) bool {
			return g.From == from && g.To == to && g.Protocol == protocol && g.Big == f.Big && slices.Equal(g.Want, want)
		}) {
			return nil // several Services have this endpoint
		}
		list = append(list, f)
		return &list[len(list)-1]
	}
	var remote []From
	for i := range c.Services {
		s := &c.Services[i]
		for _, to := range s.Addresses {
			for _, from := range append(senders, own) {
				add(ToService, s.Name, from, to, s.Protocol, s.Endpoints)
				if s.Protocol == unix.IPPROTO_TCP {
					add(ToService, s.Name+full, from, to, s.Protocol, s.Endpoints)
				}
			}
		}
		for _, e := range s.Endpoints {
			from := From{Address: e.Addr()}
			if !here[e.Addr()] && !slices.Contains(remote, from) && !slices.ContainsFunc(c.Servers, func(s netip.AddrPort) bool { return s == e }) {
				remote = append(remote, from)
			}
			for _, from := range append(senders, own) {
				if from.Address != e.Addr() && e.Port() != dns {
					add(ToEndpoint, anEndpoint+s.Name, from, e, s.Protocol, nil)
				}
			}
		}
	}
	var outside []From
	for _, o := range c.Outside {
		outside = append(outside, From{Address: o.Addr()})
		for _, from := range append(senders, own) {
			if f := add(ToOutside, "the outside", from, o, unix.IPPROTO_TCP, nil); f != nil {
				f.Outside, f.Hidden = true, !from.Node && masquerades(o.Addr().Is6())
			}
		}
	}
	for i := range c.Services {
		s := &c.Services[i]
		want := s.Here
		if want == nil {
			want = s.Endpoints
		}
		for _, from := range outside {
			for _, to := range s.External {
				if len(want) > 0 {
					add(ToService, s.Name, from, to, s.Protocol, want)
				}
			}
		}
		for _, from := range remote[:min(1, len(remote))] {
			for _, e := range s.Endpoints {
				if here[e.Addr()] && e.Port() != dns {
					add(ToEndpoint, anEndpoint+s.Name, from, e, s.Protocol, nil)
				}
			}
		}
	}
	for _, to := range c.Servers {
		for _, from := range append(senders, own) {
			add(ToServer, "the API server", from, to, unix.IPPROTO_TCP, nil)
		}
	}
	for _, to := range c.Node {
		if to.Port() != kubelet {
			for _, node := range c.Nodes {
				add(ToOverlay, "the overlay network", From{Address: node}, to, unix.IPPROTO_UDP, nil)
			}
			continue
		}
		for _, server := range c.Servers {
			if !slices.Contains(c.Own, server.Addr()) {
				add(ToKubelet, ToKubelet, From{Address: server.Addr()}, to, unix.IPPROTO_TCP, nil)
			}
		}
	}
	for _, p := range c.HostPorts {
		for _, from := range outside {
			if here[p.To.Addr()] {
				add(ToHostPort, ToHostPort, from, p.At, p.Protocol, []netip.AddrPort{p.To})
			}
		}
	}
	if c.Page.IsValid() {
		add(ToPage, ToPage, own, c.Page, unix.IPPROTO_TCP, nil)
	}
	return list
}

const anEndpoint = "an endpoint of "

// Ports returns the ports at which the flows arrive.
func Ports(flows []Flow) (list []replica.Port) {
	for _, f := range flows {
		for _, to := range append(f.Want, f.To) {
			if p := (replica.Port{Protocol: f.Protocol, Number: to.Port()}); !slices.Contains(list, p) {
				list = append(list, p)
			}
		}
	}
	return list
}
