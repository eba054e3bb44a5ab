package checks

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"nodegate/internal/host"
	"nodegate/policy"
)

// link requires settings of every network interface that matches.
type link struct{ policy.Link }

func (l link) Name() string              { return "link." + l.Link.Name }
func (l link) Metadata() policy.Metadata { return l.Link.Metadata }

func (l link) Inspect(ctx context.Context, h *host.Host) (State, error) {
	s := State{Want: l.Want()}
	links, err := l.matching(ctx, h)
	if err != nil {
		return s, err
	}
	if len(links) == 0 {
		s.Skip = "no link matches yet"
		return s, nil
	}
	var wrong []string
	for _, found := range links {
		settings, err := l.settings(ctx, h, found)
		if errors.Is(err, fs.ErrNotExist) {
			continue // gone since it was listed
		}
		if err != nil {
			return s, err
		}
		for _, set := range settings {
			s.Evidence = append(s.Evidence, Evidence{found.Name, set.name + "=" + set.got})
			if !set.holds {
				wrong = append(wrong, fmt.Sprintf("%s: %s=%s", found.Name, set.name, set.got))
				s.Remedy = set.remedy
			}
		}
	}
	s.Pass, s.Got = len(wrong) == 0, s.Want
	if !s.Pass {
		s.Got = strings.Join(wrong, ", ")
	}
	return s, nil
}

func (l link) Fix(ctx context.Context, h *host.Host) error {
	links, err := l.matching(ctx, h)
	if err != nil {
		return err
	}
	var errs []error
	for _, found := range links {
		if err := l.fix(ctx, h, found); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (l link) fix(ctx context.Context, h *host.Host, found host.Link) error {
	settings, err := l.settings(ctx, h, found)
	if err != nil {
		return err
	}
	return l.set(ctx, h, found, settings)
}

// set makes right what of the settings is not, and can be.
func (l link) set(ctx context.Context, h *host.Host, found host.Link, settings []setting) error {
	features := map[string]bool{}
	var errs []error
	for _, s := range settings {
		switch {
		case s.holds || s.stuck:
		case s.key != "":
			errs = append(errs, writeSysctl(h, s.key, s.got, s.want))
		case s.name == "mtu":
			errs = append(errs, h.Links.SetMTU(ctx, found.Name, l.MTU))
		default:
			features[s.name] = s.want == "on"
		}
	}
	if len(features) > 0 {
		errs = append(errs, h.Links.SetFeatures(ctx, found.Name, features))
	}
	return errors.Join(errs...)
}

// matching is the links that satisfy every condition of the match block. What
// costs a system call a link, or a dump of all routes, is asked only if needed.
func (l link) matching(ctx context.Context, h *host.Host) ([]host.Link, error) {
	links, err := h.Links.List(ctx)
	if err != nil {
		return nil, err
	}
	var routes []string
	if l.Match.DefaultRoute {
		if routes, err = h.Links.DefaultRoutes(ctx); err != nil {
			return nil, err
		}
	}
	var all []host.Link
	for _, found := range links {
		if !l.mayMatch(found) || l.Match.DefaultRoute && !slices.Contains(routes, found.Name) {
			continue
		}
		ok, err := l.driverMatches(ctx, h, found)
		if err != nil {
			return nil, err
		}
		if ok {
			all = append(all, found)
		}
	}
	return all, nil
}

// mayMatch is what a link's name and kind say, which cost nothing.
func (l link) mayMatch(found host.Link) bool {
	if l.Match.Name != "" {
		if ok, err := path.Match(l.Match.Name, found.Name); err != nil || !ok {
			return false
		}
	}
	return l.Match.Kind == "" || l.Match.Kind == found.Kind
}

func (l link) driverMatches(ctx context.Context, h *host.Host, found host.Link) (bool, error) {
	if l.Match.Driver == "" {
		return true, nil
	}
	driver, err := h.Links.Driver(ctx, found.Name)
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return driver == l.Match.Driver, err
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}
