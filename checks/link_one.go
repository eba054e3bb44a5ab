package checks

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"

	"nodegate/internal/host"
	"nodegate/policy"
)

// LinkRequirement is a link requirement for who is told of links one by one.
type LinkRequirement struct{ link }

// LinkRequirements is those of a policy that apply on this node.
func LinkRequirements(p *policy.Policy) []LinkRequirement {
	var all []LinkRequirement
	for _, l := range p.Links {
		if l.Applies() {
			all = append(all, LinkRequirement{link{l}})
		}
	}
	return all
}

// Routed tells whether a link matches only while it carries a default route,
// which no notice about the link tells.
func (r LinkRequirement) Routed() bool { return r.Match.DefaultRoute }

// MayMatch is what a link's name and kind say. It asks the kernel nothing.
func (r LinkRequirement) MayMatch(found host.Link) bool { return r.mayMatch(found) }

// Matches tells whether the link satisfies every condition.
func (r LinkRequirement) Matches(ctx context.Context, h *host.Host, found host.Link) (bool, error) {
	if !r.mayMatch(found) {
		return false, nil
	}
	if r.Match.DefaultRoute {
		routes, err := h.Links.DefaultRoutes(ctx)
		if err != nil || !slices.Contains(routes, found.Name) {
			return false, err
		}
	}
	return r.driverMatches(ctx, h, found)
}

// Matching is every link that satisfies it now.
func (r LinkRequirement) Matching(ctx context.Context, h *host.Host) ([]host.Link, error) {
	return r.matching(ctx, h)
}

// Reconciled is what Reconcile found and did.
type Reconciled struct {
	Was   string // what differed: "tx-checksum-ip-generic=on", "" where nothing did
	Still string // what differs after the correction
	Set   bool   // may permitted the change
}

// Reconcile inspects one link. Where something differs that can be corrected, and
// may permits the change, it corrects it and reads back what the kernel did.
// In a link that has gone, nothing differs.
//
// found is what a notice said, which may be late. Where something differs, the
// link is read again, but for the first setting of a link that has just appeared:
// whatever has its name by now wants the same.
func (r LinkRequirement) Reconcile(ctx context.Context, h *host.Host, found host.Link, appeared bool, may func() bool) (Reconciled, error) {
	settings, err := r.settings(ctx, h, found)
	if err == nil && differing(settings) != "" && (!appeared || r.MTU != 0) {
		var now host.Link
		if now, err = current(ctx, h, found); err == nil && now.MTU != found.MTU {
			settings, err = r.settings(ctx, h, now)
		}
	}
	var s Reconciled
	if err == nil {
		s.Was = differing(settings)
	}
	if s.Was != "" && may() {
		s.Set = true
		if err = r.set(ctx, h, found, settings); err == nil {
			if r.MTU != 0 {
				found.MTU = r.MTU // SetMTU fails where the kernel chose another one
			}
			settings, err = r.settings(ctx, h, found)
			s.Still = differing(settings)
		}
		if err == nil && s.Still != "" {
			if _, err = current(ctx, h, found); err != nil {
				s.Still = "" // another link has its name by now
			}
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return s, err
}

// current returns the link as it is now. A link made again under the same name is
// another one.
func current(ctx context.Context, h *host.Host, l host.Link) (host.Link, error) {
	now, err := h.Links.Get(ctx, l.Name)
	if err == nil && now.Index != l.Index {
		err = fs.ErrNotExist
	}
	return now, err
}

func differing(settings []setting) string {
	var wrong []string
	for _, s := range settings {
		if !s.holds && !s.stuck {
			wrong = append(wrong, s.name+"="+s.got)
		}
	}
	return strings.Join(wrong, ", ")
}
