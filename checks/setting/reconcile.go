package setting

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// LinkRequirement applies one link block to single interfaces.
type LinkRequirement struct{ link }

// LinkRequirements returns the link requirements of a policy that apply on this node.
func LinkRequirements(p *policy.Policy) []LinkRequirement {
	var all []LinkRequirement
	for _, l := range newLinks(p) {
		if l.Applies() {
			all = append(all, LinkRequirement{l})
		}
	}
	return all
}

// Routed reports whether a link matches only while it carries a default route, which netlink's link
// notices do not report.
func (r LinkRequirement) Routed() bool { return r.Match.DefaultRoute }

// MayMatch reports whether a link's name and kind match. It makes no system call.
func (r LinkRequirement) MayMatch(found host.Link) bool { return r.mayMatch(found) }

// Matches reports whether the link satisfies every condition.
func (r LinkRequirement) Matches(ctx context.Context, h *host.Host, found host.Link) (bool, error) {
	return r.matches(ctx, h, found)
}

// Matching returns every link that satisfies the conditions now.
func (r LinkRequirement) Matching(ctx context.Context, h *host.Host) ([]host.Link, error) {
	return r.matchingLinks(ctx, h)
}

// Reconciled is the result of Reconcile.
type Reconciled struct {
	Was   string // the differences before: "tx-checksum-ip-generic=on", "" for none
	Still string // the differences after the change
	Set   bool   // may() permitted the change
	Made  []checks.Change
}

// Reconcile inspects one link, changes the settings that differ and can be changed if may returns
// true, and reads them back. If the link is gone, nothing differs.
//
// found is the link of a notice, which may be late: another link may have its name by then. Settings for which the driver may reset the
// link are changed only if resets is true.
func (r LinkRequirement) Reconcile(ctx context.Context, h *host.Host, found host.Link, appeared, resets bool, may func() bool) (
	Reconciled, error,
) {
	read := func() ([]setting, error) {
		settings, err := r.readSettings(ctx, h, found)
		for i := range settings {
			settings[i].stuck = settings[i].stuck || settings[i].kind.Resets() && !resets
		}
		return settings, err
	}
	settings, err := read()
	if err == nil && !appeared && describeDifferences(settings) != "" {
		_, err = reloadLink(ctx, h, found)
	}
	var s Reconciled
	if err == nil {
		s.Was = describeDifferences(settings)
	}
	if s.Was != "" && may() {
		s.Set = true
		for _, c := range planChanges(found.Name, settings) {
			failed := c.Make(ctx, h)
			if failed == nil {
				s.Made = append(s.Made, c)
			}
			err = errors.Join(err, failed)
		}
		if err == nil {
			settings, err = read()
			s.Still = describeDifferences(settings)
		}
		if err == nil && s.Still != "" {
			if _, err = reloadLink(ctx, h, found); err != nil {
				s.Still = "" // another link now has its name
			}
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return s, err
}

// reloadLink reads the link again. It returns fs.ErrNotExist if the link was recreated under the
// same name, because that is another link.
func reloadLink(ctx context.Context, h *host.Host, l host.Link) (host.Link, error) {
	now, err := h.Links.Get(ctx, l.Name)
	if err == nil && now.Index != l.Index {
		err = fs.ErrNotExist
	}
	return now, err
}

func describeDifferences(settings []setting) string {
	var wrong []string
	for _, s := range settings {
		if !s.ok && !s.stuck {
			wrong = append(wrong, s.label+"="+s.got)
		}
	}
	return strings.Join(wrong, ", ")
}
