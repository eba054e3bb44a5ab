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

// Links returns the link requirements of a policy that apply on this node.
func Links(p *policy.Policy) []Link {
	return slices.DeleteFunc(newLinks(p), func(l Link) bool { return !l.Applies() })
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
// found is the link of a notice, which may be late: if a setting differs, the link is read again.
// Only the first change of a new link skips this, unless its MTU matters: a link recreated under
// the same name needs the same change. Settings for which the driver may reset the link are changed only if resets is true.
func (l Link) Reconcile(ctx context.Context, h *host.Host, found host.Link, appeared, resets bool, may func() bool) (
	Reconciled, error,
) {
	read := func() ([]setting, error) {
		settings, err := l.readSettings(ctx, h, found)
		for i := range settings {
			settings[i].stuck = settings[i].stuck || settings[i].kind.Resets() && !resets
		}
		return settings, err
	}
	settings, err := read()
	again := func() {
		if found, err = reloadLink(ctx, h, found); err == nil {
			settings, err = read()
		}
	}
	scalar := slices.ContainsFunc(l.Settings, func(s policy.LinkSetting) bool { return s.Kind.IsScalar() })
	if err == nil && describeDifferences(settings) != "" && (!appeared || scalar) {
		again()
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
			again()
		}
		if err == nil {
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
