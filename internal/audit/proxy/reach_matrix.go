package proxy

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"nodegate/internal/audit/path"
	"nodegate/internal/ruleset"
)

// flow is a class of connections: one of them stands for all. It is followed through all rules, and so is its reply.
type flow struct {
	who     string // the sender
	to      string // the kind of address
	packet  path.Packet
	service string
	minor   bool // a loss may be on purpose: another machine is kept out
	itself  bool // from a Pod to itself, whose rules may concern this Pod alone
}

// anyPort is the source port of all flows: one that the kernel gives clients, and that no Service has.
const anyPort = 40007

// maxFlows bounds the Services of one kind that stand for all.
const maxFlows = 6

// judgeFlows follows one connection of each class: each sender to each kind of address. The other judges follow first packets up to
// kube-proxy's rules, or behind them; here the whole way counts, with the marks of kube-proxy's rules, and the way back.
func (r *reach) judgeFlows() {
	node := r.node
	node.Own = r.ownOrPod(r.own)
	whole := r.rules.For(node)
	node.Elsewhere = notOfContainers
	r.back = whole.For(node)
	for _, f := range append(r.directFlows(), r.serviceFlows()...) {
		ways := whole.Walk(f.packet, "", nil)
		if f.itself {
			r.judgeItself(&f, ways)
			continue
		}
		step, w, lost := path.DropsSurely(ways)
		if !lost {
			step, w, lost = path.MayDrop(ways)
		}
		if lost && r.losesOthers(whole, step, w) {
			r.addFlow(&f, step, w, false)
		} else if lost && w.Open == nil {
			r.noteLoss("packets "+f.who+" to "+cmp.Or(f.service, f.to), step)
		}
		for i := range ways {
			if w := &ways[i]; w.Sure && (w.End == path.Forwarded || w.End == path.Delivered) {
				r.judgeWay(&f, w)
			}
		}
	}
}

// losesOthers reports whether a rule that loses the packets to an endpoint loses those to the other Pods of its node too. A rule for
// one Pod is not a fault.
func (r *reach) losesOthers(rules *path.Rules, step path.Step, w path.Way) bool {
	p := w.Packet
	if !p.Translated() || !p.Destination.IsSingleIP() || step.Hook == path.Prerouting || step.Hook == path.Routing ||
		r.own(p.Destination.Addr()) == path.Yes {
		return true
	}
	p.Destination, p.Out = r.rangeOf(p.Destination.Addr())
	ways := rules.Translated(p)
	other, _, lost := path.DropsSurely(ways)
	if w.Open != nil {
		other, _, lost = path.MayDrop(ways)
	}
	return lost && stepKey(other) == stepKey(step)
}

// judgeItself judges only whether the packets of a Pod to itself leave masqueraded.
func (r *reach) judgeItself(f *flow, ways []path.Way) {
	for i := range ways {
		if step, lost := unmarked(&ways[i]); lost && ways[i].Sure {
			if t := r.addFlow(f, step, ways[i], false); t != nil {
				t.masquerade, t.minor = true, true
			}
		}
	}
}

// judgeWay judges the end of a way: its packets must be masqueraded if kube-proxy has marked them, and their reply must come back.
func (r *reach) judgeWay(f *flow, w *path.Way) {
	if step, lost := unmarked(w); lost {
		if t := r.addFlow(f, step, *w, false); t != nil {
			t.masquerade = true
		}
		return
	}
	if step, of, is := r.back.SourcedElsewhere([]path.Way{*w}); is && r.uplink != "" && w.Packet.Out == r.uplink {
		r.addFlow(f, step, of, true) // Pods of this node answer to the node all the same
		return
	}
	any := *w
	if p := &any.Packet; p.Translated() && p.Destination.IsSingleIP() && r.own(p.Destination.Addr()) != path.Yes {
		p.Destination, _ = r.rangeOf(p.Destination.Addr()) // not the rules for this Pod
	}
	if f.service != "" && !byProxy(w.Steps) {
		r.judgeTaken(f, w)
		return
	}
	ways := r.back.Reply(f.packet, &any)
	step, lostWay, lost := path.DropsSurely(ways)
	if !lost {
		step, lostWay, lost = path.MayDrop(ways)
	}
	if !lost && w.Packet.Translated() {
		if step, lost = untracksSurely(ways); lost {
			lostWay = ways[0]
		}
	}
	if !lost {
		step, lostWay, lost = otherZone(w, ways)
	}
	if lost {
		lostWay.Chance *= w.Chance
		r.addFlow(f, step, lostWay, true)
	}
}

// judgeTaken judges packets of other machines to a Service that kube-proxy's rules do not translate. The other senders' are judged
// by judgeServices.
func (r *reach) judgeTaken(f *flow, w *path.Way) {
	step, ok := decider(*w)
	if f.packet.Own || f.packet.Source.IsValid() || !ok || step.Unsure != "" ||
		step.Table != "nat" && step.Effect != path.Changes && step.Effect != path.Untracks {
		return
	}
	r.addFlow(f, step, *w, false)
}

// unmarked returns the rule that took kube-proxy's mark from packets, which then leave with the client's address.
func unmarked(w *path.Way) (step path.Step, lost bool) {
	marked := false
	for _, s := range w.Steps {
		switch {
		case s.Effect != path.Marks:
		case s.Chain == "KUBE-MARK-MASQ" || s.Chain == "mark-for-masquerade":
			marked = true
		case marked && s.Chain != "KUBE-POSTROUTING" && s.Unsure == "":
			step, lost = s, true
		}
	}
	return step, lost && w.End == path.Forwarded && !w.Packet.Masqueraded()
}

// addFlow records the rule that loses a flow or its reply, unless another judge has found it.
func (r *reach) addFlow(f *flow, step path.Step, w path.Way, reply bool) *taken {
	who, is := r.loses(&sender{who: f.who + " to " + f.to}, &path.Loss{Step: step, Way: w})
	if !is || step.Owner() == "Cilium" || strings.HasSuffix(step.Table, " "+ruleset.KubeProxyTable) { // judged elsewhere
		return nil
	}
	if t := r.found[stepKey(step)]; t != nil && !t.flow {
		return nil
	}
	t := r.add(step, w, who)
	t.flow = true
	if f.service != "" && len(t.services) == 0 {
		t.services = []string{f.service}
	}
	t.outside = f.minor && (len(t.who) == 1 || t.outside)
	t.replies = t.replies || reply
	return t
}

// directFlows returns the connections to Pods and to the node itself.
func (r *reach) directFlows() (list []flow) {
	add := func(who, to string, p path.Packet) {
		for _, protocol := range []string{"tcp", "udp"} {
			p.Protocol, p.State, p.SourcePort, p.UnnamedFrom = protocol, path.StateNew, anyPort, true
			list = append(list, flow{who: who, to: to, packet: p})
		}
	}
	if !r.local.To.IsValid() {
		return nil
	}
	here := r.local.To
	if r.family == ruleset.IPv6 { // without neighbour discovery there is no IPv6
		p := path.Packet{Source: here, In: r.local.Link, Destination: netip.PrefixFrom(here.Addr(), here.Addr().BitLen()), ToNode: path.Yes,
			Protocol: "icmpv6", State: path.StateUntracked, UnnamedFrom: true}
		list = append(list, flow{who: "of ICMPv6 from Pods", to: "the node", packet: p})
	}
	full := path.Packet{Source: here, In: r.local.Link, Destination: here, Out: r.local.Link, ToNode: path.No, Protocol: "tcp",
		State: path.StateEstablished, SourcePort: anyPort, UnnamedFrom: true, Full: true}
	list = append(list, flow{who: "that fill the MTU from Pods", to: "Pods of this node", packet: full})
	add("from the node", "its Pods", path.Packet{Own: true, Destination: here, Out: r.local.Link, ToNode: path.No})
	add("from Pods", "Pods of this node", path.Packet{Source: here, In: r.local.Link, Destination: here, Out: r.local.Link, ToNode: path.No})
	for _, other := range r.otherPods() {
		add("from Pods", "Pods of other "+
			"nodes", path.Packet{Source: here, In: r.local.Link, Destination: other.To, Out: other.Link, ToNode: path.No})
		add("from Pods of other nodes", "Pods of this node", path.Packet{Source: other.To, In: other.Link, Destination: here,
			Out: r.local.Link, ToNode: path.No})
	}
	return list
}

// otherPods returns the route to the Pods of another node, if the routes show one.
func (r *reach) otherPods() []path.Route {
	for _, one := range r.opts.Routes {
		if one.Link != "" && one.To != r.local.To && r.isOfPods(one.To) && !one.To.IsSingleIP() && one.Link != r.local.Link {
			return []path.Route{one}
		}
	}
	return nil
}

// serviceFlows returns connections to Services, one for each protocol, place and port of their endpoints.
func (r *reach) serviceFlows() (list []flow) {
	type class struct {
		protocol, place string
		port            path.Class
		external        bool
	}
	seen := map[class]bool{}
	for _, i := range r.fewestEndpoints() {
		s := &r.rep.Services[i]
		if s.Family != r.family || len(s.Endpoints) == 0 || r.isFound(s) {
			continue
		}
		at, err := netip.ParseAddrPort(s.Endpoints[0].Address)
		if err != nil {
			continue
		}
		_, link := r.rangeOf(at.Addr())
		one := class{s.Protocol, link, r.classes().Of(netip.Addr{}, s.Protocol, at.Port()), s.NodePort != 0 ||
			len(s.ExternalIPs)+len(s.LoadBalancerIPs) > 0}
		if r.own(at.Addr()) == path.Yes {
			one.place = "node"
		}
		if seen[one] || len(seen) >= maxFlows {
			continue
		}
		seen[one] = true
		list = append(list, r.flowsTo(s, at)...)
	}
	return list
}

// fewestEndpoints returns the indexes of the Services, the cheapest to follow first.
func (r *reach) fewestEndpoints() []int {
	list := make([]int, len(r.rep.Services))
	for i := range list {
		list[i] = i
	}
	slices.SortStableFunc(list, func(a, b int) int { return len(r.rep.Services[a].Endpoints) - len(r.rep.Services[b].Endpoints) })
	return list
}

// isFound reports whether a finding is about a Service: its rules are damaged.
func (r *reach) isFound(s *Service) bool {
	return slices.ContainsFunc(r.out.List, func(f Finding) bool { return f.Service == s.Name })
}

// flowsTo returns the connections to one Service.
func (r *reach) flowsTo(s *Service, endpoint netip.AddrPort) (list []flow) {
	add := func(who, to, address string, port int, p path.Packet, minor bool) {
		if ip, err := netip.ParseAddr(address); err == nil && port != 0 {
			p.Destination, p.Port, p.Protocol, p.State, p.SourcePort = path.Addr(ip), uint16(port), s.Protocol, path.StateNew, anyPort
			list = append(list, flow{who: who, to: to, packet: p, service: s.Name, minor: minor, itself: to == "a Service"})
		}
	}
	pods := r.senders()[0].packet
	pods.UnnamedFrom = true
	add("from Pods", "Services", s.ClusterIP, s.Port, pods, false)
	add("from the node", "Services", s.ClusterIP, s.Port, path.Packet{Own: true}, false)
	if r.local.To.IsValid() && r.local.To.Contains(endpoint.Addr()) && len(s.Endpoints) == 1 {
		itself := pods
		itself.Source = path.Addr(endpoint.Addr())
		add("from a Pod to itself", "a Service", s.ClusterIP, s.Port, itself, false)
	}
	outside := path.Packet{NotFrom: r.pods, UnnamedFrom: true, In: r.uplinkIn()}
	for _, ip := range slices.Concat(s.ExternalIPs[:min(1, len(s.ExternalIPs))], s.LoadBalancerIPs[:min(1, len(s.LoadBalancerIPs))]) {
		add("from other machines", "external addresses", ip, s.Port, outside, len(s.SourceRanges) > 0 || s.ExternalLocal)
	}
	node := cmp.Or(r.served, r.nodeAddress())
	if s.NodePort != 0 && node != "" {
		outside.ToNode = path.Yes
		add("from other machines", "node ports", node, s.NodePort, outside, true)
	}
	return list
}

func (r *reach) uplinkIn() string {
	if r.family == ruleset.IPv4 {
		return r.uplink
	}
	return ""
}

// nodeAddress returns an address of the node, if it is known.
func (r *reach) nodeAddress() string {
	for _, a := range r.opts.Addresses {
		if familyOf(a) == r.family && !a.IsLoopback() && !a.IsLinkLocalUnicast() && !r.local.To.Contains(a) && !strings.HasPrefix(a.String(),
			"169.254.") {
			return a.String()
		}
	}
	return ""
}
