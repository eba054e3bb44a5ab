package replay

import (
	"context"
	"net/netip"
	"sort"

	"nodegate/internal/host/replica"
)

// takeAway finds the part without which a flow passes, by halves: the last of the shortest beginning of other programs' parts whose
// absence lets it pass. The rules of a CNI come last, for without them Pods may reach nothing.
func (p *Replay) takeAway(ctx context.Context, o *Outcome) (part int, ok bool) {
	var list, jumps, last []int
	for i := range p.Replica.Capture.Parts {
		one := &p.Replica.Capture.Parts[i]
		switch {
		case one.Own:
		case isOfNetwork(one):
			last = append(last, i)
		case one.Target != "":
			jumps = append(jumps, i)
		default:
			list = append(list, i)
		}
	}
	list = append(list, jumps...) // after the rules of the chain to which they lead: the innermost is named
	if !p.passes(ctx, o, list) {
		if list = append(list, last...); len(last) == 0 || !p.passes(ctx, o, list) {
			return -1, false
		}
	}
	if len(list) == 0 {
		return -1, false
	}
	at := sort.Search(len(list)-1, func(i int) bool { return p.passes(ctx, o, list[:i+1]) })
	return list[at], true
}

// detour finds a route more specific than the default route without which a flow passes: without all routes nothing does.
func (p *Replay) detour(ctx context.Context, o *Outcome) (part int, ok bool) {
	for i := range p.Replica.Capture.Parts {
		one := &p.Replica.Capture.Parts[i]
		if to, err := netip.ParsePrefix(one.To); one.Kind == replica.PartRoute && err == nil && to.Contains(o.Address) &&
			p.passes(ctx, o, []int{i}) {
			return i, true
		}
	}
	return -1, false
}

// passes reports whether a flow passes without some parts, and leaves by no tunnel as it did.
func (p *Replay) passes(ctx context.Context, o *Outcome, parts []int) bool {
	without := map[int]bool{}
	for _, i := range parts {
		without[i] = true
	}
	if err := p.Replica.Load(ctx, without); err != nil {
		return false
	}
	for range 2 { // a busy machine must not have another part named
		if now := p.send(ctx, []Flow{o.Flow}, copies)[0]; now.Lost == 0 { // many copies: a limit lets some pass after each change
			return now.Link == "" || now.Link != o.Link
		}
	}
	return false
}
