package proxy

import (
	"net/netip"
	"slices"

	"nodegate/internal/audit/path"
	"nodegate/internal/ruleset"
)

// judgeEndpoints judges the packets to the endpoints that kube-proxy's rules choose. A rule may lose the packets to all
// Pods, to the Pods of one node, or to one port.
func (r *reach) judgeEndpoints() {
	for _, from := range r.senders() {
		p := from.packet
		p.Destination = r.pods
		if !slices.ContainsFunc(r.rules.Translated(p), func(w path.Way) bool { return r.isLost(&from, &w) }) {
			continue
		}
		if r.pods.IsValid() {
			r.judgeAllPods(&from)
		}
		r.judgeEachEndpoint(&from)
	}
}

// isLost reports whether a rule may drop a packet, and is a fault.
func (r *reach) isLost(from *sender, w *path.Way) bool {
	if !isDropped(*w) || len(w.Steps) == 0 {
		return false
	}
	_, is := r.loses(from, &path.Loss{Step: w.Steps[len(w.Steps)-1]})
	return is
}

// judgeAllPods judges the packets to Pods of all nodes, or of this node.
func (r *reach) judgeAllPods(from *sender) {
	for _, loss := range r.toPods(from.packet, r.rules.ToEndpoints) {
		if who, is := r.loses(from, &loss); is && r.found[stepKey(loss.Step)] == nil {
			t := r.add(loss.Step, loss.Way, who)
			t.endpoints, t.here = true, loss.Way.Packet.Out != ""
		}
	}
}

// toPods returns the rules that drop packets to Pods, whatever the link, or those that leave by the link by which they came in: to
// Pods of this node.
func (r *reach) toPods(p path.Packet, losses func(path.Packet, netip.Prefix) []path.Loss) []path.Loss {
	list := losses(p, r.pods)
	back := path.BackToPods(p.In)
	if back == "" || r.local.Link != "" && r.local.Link != back { // left over from another CNI plugin
		return list
	}
	p.Out = back
	return append(list, losses(p, r.pods)...)
}

// endpointRange is a range of endpoints with one port.
type endpointRange struct {
	to       netip.Prefix
	link     string
	protocol string
	port     uint16
}

// endpointClass is a class of endpoints that rules treat alike.
type endpointClass struct {
	first, last path.Class
	link        string
}

// judgeEachEndpoint judges the packets to each endpoint by its port, its link and the range of its node's Pods.
func (r *reach) judgeEachEndpoint(from *sender) {
	alike, walked := map[endpointRange]*path.Loss{}, map[endpointClass]*path.Loss{}
	for i := range r.rep.Services {
		s := &r.rep.Services[i]
		if s.Family != r.family {
			continue
		}
		lost := map[*taken]int{}
		for _, e := range s.Endpoints {
			at, err := netip.ParseAddrPort(e.Address)
			if err != nil {
				continue
			}
			one := endpointRange{protocol: s.Protocol, port: at.Port()}
			one.to, one.link = r.rangeOf(at.Addr())
			loss, known := alike[one]
			if !known {
				loss = r.endpointLoss(from, one, walked)
				alike[one] = loss
			}
			if loss == nil || r.own(at.Addr()) == path.Yes {
				continue
			}
			t := r.found[stepKey(loss.Step)]
			if t != nil && len(t.services) == 0 {
				continue // all Services lose them
			}
			if t == nil || lost[t] == 0 {
				t = r.add(loss.Step, loss.Way, from.who)
			}
			if lost[t]++; lost[t] == 1 && !slices.Contains(t.services, s.Name) {
				t.services = append(t.services, s.Name)
			}
		}
		for t, n := range lost {
			t.some = t.some || n < len(s.Endpoints)
		}
	}
}

// endpointLoss returns the rule that drops the packets to endpoints, or nil.
func (r *reach) endpointLoss(from *sender, to endpointRange, walked map[endpointClass]*path.Loss) *path.Loss {
	const most = 500 // walks: thousands of rules for single ranges leave the rest unknown
	class := endpointClass{first: r.classes().Of(to.to.Addr(), to.protocol, to.port), link: to.link}
	if to.to.IsValid() {
		class.last = r.classes().Of(ruleset.Last(to.to), "", 0)
	}
	loss, known := walked[class]
	if known || len(walked) >= most {
		return loss
	}
	p := from.packet
	p.Destination, p.Protocol, p.Port, p.Out = to.to, to.protocol, to.port, to.link
	if step, w, lost := path.DropsSurely(r.rules.Translated(p)); lost {
		if _, is := r.loses(from, &path.Loss{Step: step}); is {
			loss = &path.Loss{Step: step, Way: w}
		}
	}
	walked[class] = loss
	return loss
}

// rangeOf returns the range of a node's Pods that contains an endpoint, and the link by which packets leave to
// it. A rule for a part of that range is for single Pods. Unless the routes show the range, it is Calico's, whose default is the
// smallest. Of an endpoint that is not a Pod, only the port is judged: a firewall may close its network to Pods.
func (r *reach) rangeOf(a netip.Addr) (all netip.Prefix, link string) {
	if !r.pods.Contains(a) && !r.local.To.Contains(a) {
		return netip.Prefix{}, ""
	}
	route := r.routes.Find(a)
	if route.To.IsSingleIP() { // by the link of this Pod alone
		route = path.Route{}
	}
	if route.To.IsValid() && route.To == r.local.To || r.isOfPods(route.To) {
		return route.To, route.Link
	}
	bits := 26
	if a.Is6() {
		bits = 122
	}
	all, _ = a.Prefix(max(bits, r.pods.Bits()))
	return all, route.Link
}

// isOfPods reports whether a range is part of the Pods' range.
func (r *reach) isOfPods(to netip.Prefix) bool {
	return r.pods.IsValid() && r.pods.Bits() <= to.Bits() && r.pods.Contains(to.Addr())
}
