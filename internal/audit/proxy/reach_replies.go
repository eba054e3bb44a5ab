package proxy

import (
	"net/netip"
	"slices"
	"strings"

	"nodegate/internal/audit/path"
	"nodegate/internal/ruleset"
)

// judgeReplies judges the packets of connections that exist: the replies of other machines to Pods and to
// the node, and the later packets of Pods. A firewall often accepts the first packet only.
func (r *reach) judgeReplies() {
	record := func(who string, list []path.Loss) {
		for _, loss := range list {
			if who, is := r.loses(&sender{who: who}, &loss); is && r.found[stepKey(loss.Step)] == nil {
				r.add(loss.Step, loss.Way, who).replies = true
			}
		}
	}
	senders := r.senders()
	for i := range senders {
		from := &senders[i]
		if from.packet.State = path.StateEstablished; !from.packet.Own {
			from.who = "of Pods"
		} else {
			from.who = "of the node"
		}
		record(from.who+" to other machines", r.losses(from.packet))
	}
	back := r.rules.For(path.Node{Own: r.own, Elsewhere: path.NotOfReplies, IPsec: r.node.IPsec, Listens: r.node.Listens})
	for _, link := range r.uplinks() {
		for _, to := range []path.Route{{To: r.pods}, r.local} {
			if to.To.IsValid() {
				record("of other machines to Pods", back.RepliesLost(path.Packet{NotFrom: r.pods, Destination: to.To, In: link, Out: to.Link}))
			}
		}
		record("of other machines to the node", back.RepliesLost(path.Packet{NotFrom: r.pods, In: link, ToNode: path.Yes}))
	}
	for _, half := range r.halves() {
		p := path.Packet{NotFrom: r.pods, Source: half, Destination: r.pods}
		if other := " other machines in " + half.String(); r.pods.IsValid() {
			record("of"+other+" to Pods", onlyHalves(back.RepliesLost(p)))
			record("of Pods to"+other, onlyHalves(r.losses(path.Packet{Source: r.pods, Destination: half, State: path.StateEstablished})))
		}
		p.Destination, p.ToNode = netip.Prefix{}, path.Yes
		record("of other machines in "+half.String()+" to the node", onlyHalves(back.RepliesLost(p)))
	}
	for _, from := range senders {
		if r.pods.IsValid() {
			record(from.who+" to Pods", r.toPods(from.packet, r.rules.ToPods))
		}
		if !from.packet.Own {
			record(from.who+" to the node", r.rules.ToNodeLost(from.packet))
		}
	}
}

// halves returns the halves of all addresses if a rule may name one: such rules come in pairs, and one may be left over.
func (r *reach) halves() []netip.Prefix {
	if r.family != ruleset.IPv4 || !r.classes().Names(netip.AddrFrom4([4]byte{128})) {
		return nil
	}
	return []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{}), 1), netip.PrefixFrom(netip.AddrFrom4([4]byte{128}), 1)}
}

// onlyHalves leaves out the rules that name other ranges: an operator may admit a network of his own alone.
func onlyHalves(list []path.Loss) []path.Loss {
	return slices.DeleteFunc(list, func(l path.Loss) bool { return !strings.Contains(l.Step.Rule+" ", "/1 ") })
}

// judgeOwnEndpoints judges the packets of Pods to Services that this node itself answers: an endpoint in
// the host's network, or NodeLocal DNSCache at the address of the Service. Their way ends in INPUT.
func (r *reach) judgeOwnEndpoints() {
	type target struct {
		at       netip.AddrPort
		protocol string
	}
	judged := map[target]bool{}
	for i := range r.rep.Services {
		s := &r.rep.Services[i]
		if s.Family != r.family {
			continue
		}
		judge := func(at netip.AddrPort, p path.Packet, translated bool) {
			p.Destination, p.Port, p.Protocol, p.ToNode = path.Addr(at.Addr()), at.Port(), s.Protocol, path.Yes
			step, w, lost := path.DropsSurely(r.rules.ToNode(p, translated))
			if !lost || step.Hook != path.Input || r.isExcused(step) {
				return
			}
			t := r.add(step, w, "from Pods")
			if !slices.Contains(t.services, s.Name) {
				t.services = append(t.services, s.Name)
			}
		}
		var own []netip.AddrPort
		if ip, err := netip.ParseAddr(s.ClusterIP); err == nil && r.own(ip) == path.Yes {
			own = append(own, netip.AddrPortFrom(ip, uint16(s.Port)))
		}
		direct := len(own)
		for _, e := range s.Endpoints {
			if at, err := netip.ParseAddrPort(e.Address); err == nil && r.own(at.Addr()) == path.Yes {
				own = append(own, at)
			}
		}
		for n, at := range own {
			if judged[target{at, s.Protocol}] {
				continue
			}
			judged[target{at, s.Protocol}] = true
			for _, from := range r.senders() {
				if !from.packet.Own {
					judge(at, from.packet, n >= direct)
				}
			}
		}
	}
}

// isExcused reports whether a drop is not a fault: see loses.
func (r *reach) isExcused(step path.Step) bool {
	_, is := r.loses(&sender{}, &path.Loss{Step: step})
	return !is
}
