package setting

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// LinkRequirement applies one link block to single interfaces.
type LinkRequirement struct{ link }

// LinkRequirements returns those of a policy that apply on this node.
func LinkRequirements(p *policy.Policy) []LinkRequirement {
	var all []LinkRequirement
	for _, l := range p.Links {
		if l.Applies() {
			all = append(all, LinkRequirement{link{l}})
		}
	}
	return all
}

// Routed reports whether a link matches only while it carries a default route,
// which no notice about the link says.
func (r LinkRequirement) Routed() bool { return r.Match.DefaultRoute }

// MayMatch reports whether a link's name and kind match. It asks the kernel nothing.
func (r LinkRequirement) MayMatch(found host.Link) bool { return r.mayMatch(found) }

// Matches reports whether the link satisfies every condition.
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

// Matching returns every link that satisfies it now.
func (r LinkRequirement) Matching(ctx context.Context, h *host.Host) ([]host.Link, error) {
	return r.matching(ctx, h)
}

// Reconciled is what Reconcile did.
type Reconciled struct {
	Was   string // what differed: "tx-checksum-ip-generic=on", "" for nothing
	Still string // what differs after the change
	Set   bool   // may() permitted the change
	Made  []checks.Change
}

// Reconcile inspects one link, changes what differs and can be changed if may
// returns true, and reads back what the kernel did. In a link that has gone,
// nothing differs.
//
// found is the link of a notice, which may be late: if something differs, the
// link is read again. Only the first change of a link that has appeared skips
// this, unless its MTU matters: a link made again under its name needs the same.
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
		for _, c := range r.changes(found, settings) {
			failed := c.Make(ctx, h)
			if failed == nil {
				s.Made = append(s.Made, c)
			}
			err = errors.Join(err, failed)
		}
		if err == nil {
			if r.MTU != 0 {
				found.MTU = r.MTU // SetMTU read it back
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
		if !s.ok && !s.stuck {
			wrong = append(wrong, s.name+"="+s.got)
		}
	}
	return strings.Join(wrong, ", ")
}
