package proxyrules

import (
	"net/netip"
	"slices"

	"nodegate/internal/ruleset"
	"nodegate/internal/way"
)

// judgeEndpoints judges the packets to the endpoints that kube-proxy's rules choose. A rule may lose the packets to all
// Pods, to those of one node, or to one port.
func (r *reach) judgeEndpoints() {
	for _, from := range r.senders() {
		p := from.packet
		p.Destination = r.pods
		if !slices.ContainsFunc(r.rules.Translated(p), func(w way.Way) bool { return r.isLost(&from, &w) }) {
			continue
		}
		if r.pods.IsValid() {
			r.judgeAllPods(&from)
		}
		r.judgeEachEndpoint(&from)
	}
}

// isLost reports whether a rule may drop a packet, and is a fault.
func (r *reach) isLost(from *sender, w *way.Way) bool {
	if !isDropped(*w) || len(w.Steps) == 0 {
		return false
	}
	_, is := r.loses(from, &way.Loss{Step: w.Steps[len(w.Steps)-1]})
	return is
}

// judgeAllPods judges the packets to Pods of all nodes, and those that leave by the link by which they came in: to Pods
// of this node.
func (r *reach) judgeAllPods(from *sender) {
	p := from.packet
	back := way.BackToPods(p.In)
	if r.local.Link != "" && r.local.Link != back { // left over from another CNI plugin
		back = ""
	}
	for _, p.Out = range []string{"", back} {
		for _, loss := range r.rules.ToEndpoints(p, r.pods) {
			if who, is := r.loses(from, &loss); is && r.found[stepKey(loss.Step)] == nil {
				t := r.add(loss.Step, loss.Way, who)
				t.endpoints, t.here = true, p.Out != ""
			}
		}
		if back == "" {
			return
		}
	}
}

// endpointClass is a class of endpoints that rules treat alike.
type endpointClass struct {
	first, last way.Class
	link        string
}

// judgeEachEndpoint judges the packets to each endpoint, of which the port, the link and the range of its node's Pods are
// known.
func (r *reach) judgeEachEndpoint(from *sender) {
	const most = 500 // walks: thousands of rules for single ranges leave the rest unknown
	walked := map[endpointClass]*way.Loss{}
	for i := range r.rep.Services {
		s := &r.rep.Services[i]
		if s.Family != r.family {
			continue
		}
		lost := map[string]int{}
		for _, e := range s.Endpoints {
			at, err := netip.ParseAddrPort(e.Address)
			if err != nil || r.own(at.Addr()) == way.Yes {
				continue
			}
			p := from.packet
			p.Protocol, p.Port = s.Protocol, at.Port()
			p.Destination, p.Out = r.rangeOf(at.Addr())
			class := endpointClass{link: p.Out}
			class.first = r.classes().Of(p.Destination.Addr(), p.Protocol, p.Port)
			if p.Destination.IsValid() {
				class.last = r.classes().Of(ruleset.Last(p.Destination), "", 0)
			}
			loss, known := walked[class]
			if !known && len(walked) < most {
				if step, w, is := way.DropsSurely(r.rules.Translated(p)); is {
					loss = &way.Loss{Step: step, Way: w}
				}
				walked[class] = loss
			}
			if loss == nil {
				continue
			}
			who, is := r.loses(from, loss)
			if t := r.found[stepKey(loss.Step)]; !is || t != nil && len(t.services) == 0 {
				continue // or all Services lose them
			}
			t := r.add(loss.Step, loss.Way, who)
			if !slices.Contains(t.services, s.Name) {
				t.services = append(t.services, s.Name)
			}
			lost[stepKey(loss.Step)]++
		}
		for key, n := range lost {
			r.found[key].some = r.found[key].some || n < len(s.Endpoints)
		}
	}
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
		route = way.Route{}
	}
	if route.To.IsValid() && (route.To == r.local.To || r.pods.IsValid() && r.pods.Bits() <= route.To.Bits() && r.pods.Contains(route.To.Addr())) {
		return route.To, route.Link
	}
	bits := 26
	if a.Is6() {
		bits = 122
	}
	all, _ = a.Prefix(max(bits, r.pods.Bits()))
	return all, route.Link
}
