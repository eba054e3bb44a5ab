package setting

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"

	"nodegate/checks"
	"nodegate/internal/ethtool"
	"nodegate/internal/host"
	"nodegate/policy"
)

// Link requires settings of every network interface that matches.
type Link struct {
	policy.Link
	earlier    []Link          // links of the policy that come first and contradict this one
	parameters []policy.Sysctl // sysctl and sysfs blocks of the policy that apply
}

// newLinks returns the links of a policy, in its order.
func newLinks(p *policy.Policy) []Link {
	var all []Link
	for _, l := range p.Links {
		one := Link{Link: l, parameters: slices.Concat(p.Applying().Sysctls, p.Applying().Sysfs)}
		for _, o := range all {
			if l.Contradicts(o.Link) != "" && l.Applies() && o.Applies() {
				one.earlier = append(one.earlier, o)
			}
		}
		all = append(all, one)
	}
	return all
}

func (l Link) Name() string              { return "link." + l.Link.Name }
func (l Link) Metadata() policy.Metadata { return l.Link.Metadata }

func (l Link) Inspect(ctx context.Context, h *host.Host) (checks.State, error) {
	s := checks.Passing(l.Want())
	links, err := l.Matching(ctx, h)
	if err != nil {
		return s, err
	}
	if len(links) == 0 {
		s.Skip = "no link matches yet"
		return s, nil
	}
	var wrong, stuck, changeable, remedies []string
	required, skipped := 0, 0
	for _, found := range links {
		settings, err := l.readSettings(ctx, h, found)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the link is gone
		}
		if err != nil {
			return s, err
		}
		for _, set := range settings {
			if set.absent != "" {
				skipped++
				s.Evidence = append(s.Evidence, checks.Seen(found.Name, set.label+" is skipped: "+set.absent+" does not exist"))
				continue
			}
			required++
			s.Evidence = append(s.Evidence, checks.Seen(found.Name, set.label+"="+set.got))
			got := found.Name + ": " + set.label + "=" + set.got
			if set.stuck {
				stuck = append(stuck, got)
			}
			switch {
			case set.ok:
				continue
			case set.stuck && !slices.Contains(remedies, set.remedy):
				remedies = append(remedies, set.remedy)
			case !set.stuck:
				changeable = append(changeable, set.remedy)
			}
			wrong = append(wrong, got)
		}
		s.Changes = append(s.Changes, planChanges(found.Name, settings)...)
	}
	switch len(changeable) {
	case 0:
	case 1:
		remedies = append(remedies, changeable[0])
	default: // one command for all of them
		remedies = append(remedies, applyRemedy)
	}
	if required == 0 && skipped > 0 {
		s.Skip = "no matching link has IPv6, and no other setting is required"
	}
	if wrong != nil {
		s.Differs(strings.Join(wrong, ", "), strings.Join(remedies, "; "))
	}
	s.Stuck = strings.Join(stuck, ", ")
	return s, nil
}

// planChanges returns the changes that correct the settings of one link where possible: first its parameters and scalars, then the others
// of each kind in one call. A link that no longer exists needs none.
func planChanges(device string, settings []setting) []checks.Change {
	var all []checks.Change
	lists := map[policy.LinkKind][]setting{}
	for _, s := range settings {
		switch {
		case s.ok || s.stuck:
		case s.key != "":
			all = append(all, writeSysctl(s.key, s.got, s.want))
		case s.kind.IsScalar():
			all = append(all, setLink(device, s.kind, s.got, s.want, map[string]string{"": s.want}))
		default:
			lists[s.kind] = append(lists[s.kind], s)
		}
	}
	for _, k := range ethtool.Kinds() {
		kind := policy.LinkKind(k.Name)
		var from, to []string
		values := map[string]string{}
		for _, s := range lists[kind] {
			values[s.name] = s.want
			from, to = append(from, s.name+"="+s.got), append(to, s.name+"="+s.want)
		}
		if from != nil {
			all = append(all, setLink(device, kind, strings.Join(from, ", "), strings.Join(to, ", "), values))
		}
	}
	for i, c := range all {
		all[i].Make = func(ctx context.Context, h *host.Host) error {
			if err := c.Make(ctx, h); !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			return nil
		}
	}
	return all
}

func setLink(device string, kind policy.LinkKind, from, to string, values map[string]string) checks.Change {
	c := checks.Change{
		What: device + " " + string(kind), From: from, To: to, Kind: checks.ChangeKind(kind), Target: device,
		Make: func(ctx context.Context, h *host.Host) error { return h.Links.Set(ctx, device, string(kind), values) },
	}
	if kind.Resets() {
		c.Note = "may reset the link; watch does this only when a link appears"
	}
	return c
}

// Matching returns the links that satisfy every condition of the match block. It makes the
// expensive queries, a system call for each link or a dump of all routes, only if needed.
func (l Link) Matching(ctx context.Context, h *host.Host) ([]host.Link, error) {
	links, err := h.Links.List(ctx)
	if err != nil {
		return nil, err
	}
	var routes []string
	if l.Routed() {
		if routes, err = h.Links.DefaultRoutes(ctx); err != nil {
			return nil, err
		}
	}
	var all []host.Link
	for _, found := range links {
		ok, err := l.matchesBeside(ctx, h, found, routes)
		if err != nil {
			return nil, err
		}
		if ok {
			all = append(all, found)
		}
	}
	return all, nil
}

// Routed reports whether a link matches only while it carries a default route, which netlink's link
// notices do not report.
func (l Link) Routed() bool { return l.Match.DefaultRoute }

// MayMatch reports whether a link's name and kind match. It makes no system call.
func (l Link) MayMatch(found host.Link) bool {
	if l.Match.Name != "" {
		if found.Name == "lo" && l.Match.Name != "lo" { // a glob means the interfaces that carry packets of others
			return false
		}
		if ok, err := path.Match(l.Match.Name, found.Name); err != nil || !ok {
			return false
		}
	}
	return l.Match.Kind == "" || l.Match.Kind == found.Kind
}

// Matches reports whether the link satisfies every condition.
func (l Link) Matches(ctx context.Context, h *host.Host, found host.Link) (bool, error) {
	var routes []string
	if l.Routed() && l.MayMatch(found) {
		var err error
		if routes, err = h.Links.DefaultRoutes(ctx); err != nil {
			return false, err
		}
	}
	return l.matchesBeside(ctx, h, found, routes)
}

// matchesBeside does the same, with the names of the links that carry a default route.
func (l Link) matchesBeside(ctx context.Context, h *host.Host, found host.Link, routes []string) (bool, error) {
	if !l.MayMatch(found) || l.Routed() && !slices.Contains(routes, found.Name) {
		return false, nil
	}
	if l.Match.Driver == "" {
		return true, nil
	}
	driver, err := h.DriverOf(ctx, found.Name)
	return driver == l.Match.Driver, err
}
