package path

import "net/netip"

// reply holds what conntrack knows about the connection of a reply.
type reply struct {
	is         bool
	dnat, snat bool         // translated: ctstate DNAT and SNAT
	undone     [2]bool      // the source's, the destination's translation is taken back
	client     netip.Prefix // the sender of the first packet
	clientPort uint16
	toNode     Answer       // the client is an address of this node
	server     netip.Prefix // the first packet's destination before it was translated
	serverPort uint16
}

// Reply returns the ways of the reply to a new packet, which came to the end of one of its ways. Conntrack takes the translations back:
// the source's (masquerading) when the reply comes in, the destination's when it leaves, or enters this node.
func (all *Rules) Reply(sent Packet, w *Way) []Way {
	at := w.Packet
	p := Packet{Source: at.Destination, Destination: sent.Source, Protocol: at.Protocol, SourcePort: at.Port, Port: sent.SourcePort,
		In: at.Out, State: StateEstablished, FirstReply: true, Own: w.End == Delivered, ConnMark: at.ConnMark}
	p.reply = reply{is: true, dnat: at.dnat && !at.kept, snat: at.snat, client: sent.Source, clientPort: sent.SourcePort,
		toNode: answer(sent.Own), server: sent.Destination, serverPort: sent.Port}
	if p.ToNode = p.reply.toNode; at.snat {
		p.Destination, p.Port, p.ToNode = at.Source, 0, Yes
	}
	if p.In == none {
		p.In = ""
	}
	return all.Walk(p, "", nil)
}

// restore takes a translation back once the packet has passed the priority of a hook at which conntrack
// does so (nf_nat_manip_pkt, at the priorities of the chains of type nat).
func (p *Packet) restore(hook string, priority int) {
	tracked := p.reply.is && p.State == StateEstablished // a NOTRACK may exclude the reply
	if !tracked || priority <= natPriority(hook) {
		return
	}
	switch hook {
	case Prerouting, Output:
		if p.reply.snat && !p.reply.undone[0] {
			p.reply.undone[0] = true
			p.Destination, p.Port, p.ToNode = p.reply.client, p.reply.clientPort, p.reply.toNode
		}
	case Postrouting, Input:
		if p.reply.dnat && !p.reply.undone[1] {
			p.reply.undone[1] = true
			p.Source, p.SourcePort = p.reply.server, p.reply.serverPort
		}
	}
}
