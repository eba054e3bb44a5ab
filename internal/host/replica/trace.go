package replica

import (
	"context"
	"slices"
	"time"

	"nodegate/internal/host/netns"
)

// Trace calls send, and returns the parts that lost packets in the meantime according to nf_tables' trace: indexes of Capture.Parts.
func (r *Replica) Trace(ctx context.Context, send func()) (parts []int, err error) {
	if len(r.Capture.NFT) == 0 {
		return nil, nil
	}
	tracer, err := r.Node.Trace(ctx)
	if err != nil {
		return nil, err
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
			if part, ok := r.partOf(e); ok && !slices.Contains(parts, part) {
				parts = append(parts, part)
			}
		}
	}
	return parts, err
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
