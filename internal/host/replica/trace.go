package replica

import (
	"context"
	"slices"
	"time"

	"nodegate/internal/host/netns"
)

// Trace calls send, and returns the part that lost a packet in the meantime according to nf_tables' trace: an index of Capture.Parts.
// ok is false if the trace shows no such part.
func (r *Replica) Trace(ctx context.Context, send func()) (part int, ok bool, err error) {
	if len(r.Capture.NFT) == 0 {
		return 0, false, nil
	}
	tracer, err := r.Node.Trace(ctx)
	if err != nil {
		return 0, false, err
	}
	defer tracer.Close()
	send()
	events, err := tracer.Events(ctx, time.Millisecond)
	last := map[uint32]*netns.TraceEvent{} // of each packet, if its verdict may be the end
	var order []uint32
	for i := range events {
		switch e := &events[i]; {
		case e.Own:
		case e.Code < 0:
			delete(last, e.Packet)
		default:
			if last[e.Packet] == nil {
				order = append(order, e.Packet)
			}
			last[e.Packet] = e
		}
	}
	for _, packet := range order {
		if e := last[packet]; e != nil && e.Code&0xff != netns.Accept {
			if part, ok = r.partOf(e); ok {
				return part, true, nil
			}
		}
	}
	return 0, false, err
}

// partOf finds the part of an event: the rules of the copy are in the order in which they were loaded.
func (r *Replica) partOf(e *netns.TraceEvent) (part int, ok bool) {
	if e.Handle == 0 {
		part = slices.IndexFunc(r.Capture.Parts, func(p Part) bool {
			return p.Kind == PartPolicy && !p.Legacy && p.Family == e.Family && p.Table == e.Table && p.Chain == e.Chain
		})
		return part, part >= 0
	}
	position := 0
	for i := range r.loaded {
		if part := r.loaded[i].Part; part >= 0 && len(r.loaded[i].Messages) > 0 {
			p := &r.Capture.Parts[part]
			if p.Kind == PartRule && p.Family == e.Family && p.Table == e.Table && p.Chain == e.Chain {
				if position++; position == e.Position {
					return part, true
				}
			}
		}
	}
	return 0, false
}
