package replay

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/replica"
)

// Service is one port of a Service, as kube-proxy knows it.
type Service struct {
	Name      string
	Protocol  uint8
	Addresses []netip.AddrPort // for every sender: of the cluster
	External  []netip.AddrPort // for other machines too: load balancers, external addresses, node ports
	Endpoints []netip.AddrPort
	Local     bool // other machines reach only the endpoints on this node
}

// Cluster is what senders and addresses are taken from.
type Cluster struct {
	Services []Service
	Pods     []replica.Pod    // of this node
	Servers  []netip.AddrPort // of the API
	Kubelet  netip.AddrPort   // of this node
	Outside  []netip.AddrPort // machines outside the cluster, one of each family
}

// Bounds of what stands for all.
const (
	maxServices = 6
	maxPods     = 6
	full        = " with full packets"
	dns         = 53 // clients ask the Service: rules that send what asks another server elsewhere are meant so
)

// Flows returns the flows of a cluster: each kind of sender to each kind of address.
func (c *Cluster) Flows(masquerades bool) (list []Flow) {
	here := map[netip.Addr]bool{}
	var senders []From
	for _, p := range c.Pods[:min(maxPods, len(c.Pods))] {
		for _, a := range p.Addresses {
			here[a] = true
			senders = append(senders, From{Address: a})
		}
	}
	own := From{Node: true}
	add := func(name string, from From, to netip.AddrPort, protocol uint8, want []netip.AddrPort) *Flow {
		if !from.Node && from.Address.Is4() != to.Addr().Is4() {
			return nil
		}
		who := "node"
		if !from.Node {
			who = from.Address.String()
		}
		if slices.ContainsFunc(list, func(f Flow) bool { return f.From == from && f.To == to && f.Protocol == protocol && !f.Big }) &&
			!strings.HasSuffix(name, full) {
			return nil // several Services have this endpoint
		}
		list = append(list, Flow{Name: fmt.Sprintf("%s to %s %s", who, name, to), From: from, To: to, Protocol: protocol, Want: want,
			Big: strings.HasSuffix(name, full)})
		return &list[len(list)-1]
	}
	var remote []From
	for i := range c.Services[:min(maxServices, len(c.Services))] {
		s := &c.Services[i]
		for _, to := range s.Addresses {
			for _, from := range append(senders, own) {
				add(s.Name, from, to, s.Protocol, s.Endpoints)
				if s.Protocol == unix.IPPROTO_TCP {
					add(s.Name+full, from, to, s.Protocol, s.Endpoints)
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
					add("an endpoint of "+s.Name, from, e, s.Protocol, nil)
				}
			}
		}
	}
	var outside []From
	for _, o := range c.Outside {
		outside = append(outside, From{Address: o.Addr()})
		for _, from := range append(senders, own) {
			if f := add("the outside", from, o, unix.IPPROTO_TCP, nil); f != nil {
				f.Outside, f.Hidden = true, masquerades && !from.Node
			}
		}
	}
	for i := range c.Services[:min(maxServices, len(c.Services))] {
		s := &c.Services[i]
		for _, from := range append(remote[:min(1, len(remote))], outside...) {
			want := s.Endpoints
			if s.Local {
				want = slices.DeleteFunc(slices.Clone(want), func(e netip.AddrPort) bool { return !here[e.Addr()] })
			}
			for _, to := range s.External {
				if len(want) > 0 && slices.Contains(outside, from) {
					add(s.Name, from, to, s.Protocol, want)
				}
			}
			for _, e := range s.Endpoints {
				if here[e.Addr()] && e.Port() != dns && slices.Contains(remote, from) {
					add("an endpoint of "+s.Name, from, e, s.Protocol, nil)
				}
			}
		}
	}
	for _, to := range c.Servers {
		for _, from := range append(senders, own) {
			add("the API server", from, to, unix.IPPROTO_TCP, nil)
		}
		if c.Kubelet.IsValid() {
			add("kubelet", From{Address: to.Addr()}, c.Kubelet, unix.IPPROTO_TCP, nil)
		}
	}
	return list
}

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
