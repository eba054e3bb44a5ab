package replay

import (
	"context"
	"net/netip"
	"slices"

	"nodegate/internal/host/replica"
)

// takeAway finds the part without which a flow passes, by halves: the last of the shortest beginning of other programs' parts whose
// absence lets it pass. The rules of a CNI come last, for without them Pods may reach nothing.
func (p *Replay) takeAway(ctx context.Context, o *Outcome) (part int, ok bool) {
	var list, last []int
	for i := range p.Replica.Capture.Parts {
		one := &p.Replica.Capture.Parts[i]
		switch {
		case one.Own:
		case isOfNetwork(one):
			last = append(last, i)
		default:
			list = append(list, i)
		}
	}
	// The rules of a chain come before those that lead to it: the innermost is named.
	slices.SortStableFunc(list, func(a, b int) int {
		parts := p.Replica.Capture.Parts
		switch {
		case (parts[a].Target == "") == (parts[b].Target == ""):
			return 0
		case parts[a].Target != "":
			return 1
		}
		return -1
	})
	if !p.passes(ctx, o, list) {
		if list = append(list, last...); len(last) == 0 || !p.passes(ctx, o, list) {
			return -1, false
		}
	}
	low, high := 0, len(list) // without list[:low] it is lost, without list[:high] it passes
	for high-low > 1 {
		if middle := (low + high) / 2; p.passes(ctx, o, list[:middle]) {
			high = middle
		} else {
			low = middle
		}
	}
	if high == 0 {
		return -1, false
	}
	return list[high-1], true
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
