package policy

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// check drops requirements that repeat another one, keeping the first and the
// stricter severity, and reports those that contradict each other.
func (p *Policy) mergeDuplicates(r *reader) {
	modules := p.Modules[:0]
	for _, m := range p.Modules {
		i := slices.IndexFunc(modules, func(o Module) bool { return o.Name == m.Name && o.Applies() })
		if i >= 0 && m.Applies() {
			mergeSeverity(&modules[i].Metadata, m.Metadata)
			r.mergeDrift("module "+m.Name, &modules[i].Metadata, m.Metadata)
			continue
		}
		modules = append(modules, m)
	}
	p.Modules = modules

	sysctls := p.Sysctls[:0]
	for _, s := range p.Sysctls {
		i := slices.IndexFunc(sysctls, func(o Sysctl) bool { return o.Key == s.Key && o.Applies() })
		if i < 0 || !s.Applies() {
			sysctls = append(sysctls, s)
			continue
		}
		merged, ok := sysctls[i].intersect(s)
		if !ok {
			r.errorf(s.Range, "Contradiction", "%s is asked to be %s here, and to be %s at %s. Remove one of the two.",
				s.Key, s.Want(), sysctls[i].Want(), place(sysctls[i].Range))
			continue
		}
		mergeSeverity(&merged.Metadata, s.Metadata)
		r.mergeDrift(s.Key.String(), &merged.Metadata, s.Metadata)
		sysctls[i] = merged
	}
	p.Sysctls = sysctls
	p.checkAliases(r)
	p.checkExclusive(r)
	p.checkGlobs(r)

	problems := p.Problems[:0]
	for _, j := range p.Problems {
		i := slices.IndexFunc(problems, func(o Problem) bool { return o.Name == j.Name && o.Applies() })
		if i >= 0 && j.Applies() {
			if problems[i].Severity == "" || j.Severity == Block {
				problems[i].Severity = j.Severity
			}
			r.mergeDrift("check "+j.Name, &problems[i].Metadata, j.Metadata)
			continue
		}
		problems = append(problems, j)
	}
	p.Problems = problems

	probes := p.Probes[:0]
	for _, pr := range p.Probes {
		i := slices.IndexFunc(probes, func(o Probe) bool { return o.Name == pr.Name && o.Applies() })
		switch {
		case i < 0 || !pr.Applies():
			probes = append(probes, pr)
		case probes[i].Timeout != pr.Timeout:
			r.errorf(pr.Range, "Contradiction", "The timeout of probe %s is %s here, and %s at %s. Remove one of the two.",
				pr.Name, pr.Timeout, probes[i].Timeout, place(probes[i].Range))
		default:
			mergeSeverity(&probes[i].Metadata, pr.Metadata)
		}
	}
	p.Probes = probes

	p.checkLinks(r)
}

// EachModule returns one module of each name, of which a report has one result.
func (p *Policy) EachModule() []Module {
	return oneOfEach(p.Modules, func(m Module) string { return m.Name }, func(m *Module) *Metadata { return &m.Metadata })
}

// EachSysctl returns one parameter of each name.
func (p *Policy) EachSysctl() []Sysctl {
	return oneOfEach(p.Sysctls, func(s Sysctl) string { return string(s.Key) }, func(s *Sysctl) *Metadata { return &s.Metadata })
}

// EachProbe returns one probe of each name.
func (p *Policy) EachProbe() []Probe {
	return oneOfEach(p.Probes, func(pr Probe) string { return pr.Name }, func(pr *Probe) *Metadata { return &pr.Metadata })
}

// oneOfEach leaves one requirement of each name: what applies, else what cannot be known, else what is off.
func oneOfEach[T any](all []T, name func(T) string, metadata func(*T) *Metadata) []T {
	var kept []T
	at := map[string]int{}
	for _, b := range all {
		i, seen := at[name(b)]
		if !seen {
			at[name(b)] = len(kept)
			kept = append(kept, b)
			continue
		}
		first, second := metadata(&kept[i]), metadata(&b)
		switch {
		case second.Off:
		case first.Off:
			kept[i] = b
		case first.Applies():
			first.noteUndecided(*second)
		case second.Applies():
			second.noteUndecided(*first)
			kept[i] = b
		default:
			mergeSeverity(first, *second)
		}
	}
	return kept
}

// beside notes another requirement of the same name, whose when is not known here. One that only warns holds nothing.
func (m *Metadata) noteUndecided(unknown Metadata) {
	if unknown.Severity != Warn {
		m.Undecided = unknown.Unknown
	}
}

// globs reports a value for what a glob, which is about every parameter that it matches, does not allow. To sysctl.d(5) the
// exact name would come first; the gate would write the one and the other until its budget ends.
func (p *Policy) checkGlobs(r *reader) {
	if r.catalogue == nil {
		return
	}
	for _, g := range applying(p.Sysctls, func(s Sysctl) bool { return s.Key.IsGlob() && s.Applies() }) {
		for _, s := range p.Sysctls {
			// Of two globs, one that matches the other's text means all that it does: * matches eth*.
			matches, _ := path.Match(string(g.Key), string(s.Key))
			if !matches || s.Key == g.Key || !s.Applies() {
				continue
			}
			if _, ok := g.intersect(s); !ok {
				r.errorf(s.Range, "Contradiction", "%s is asked to be %s here, and %s, which means it too, to be %s at %s. Remove one of the two, "+
					"or name the others one by one.", s.Key, s.Want(), g.Key, g.Want(), place(g.Range))
			}
		}
	}
}

func mergeSeverity(a *Metadata, b Metadata) {
	if b.Severity == Block {
		a.Severity = Block
	}
}

// sameDrift keeps what one of two equal requirements says about drift.
func (r *reader) mergeDrift(what string, a *Metadata, b Metadata) {
	switch {
	case a.Drift == "":
		a.Drift = b.Drift
	case b.Drift != "" && b.Drift != a.Drift:
		r.errorf(b.Range, "Contradiction", "The drift of %s is %q here, and %q at %s. Remove one of the two.",
			what, b.Drift, a.Drift, place(a.Range))
	}
}

// and returns the requirement that asks for both, if one value can satisfy both.
func (s Sysctl) intersect(o Sysctl) (Sysctl, bool) {
	tight, loose := s, o
	if o.narrowness() > s.narrowness() {
		tight, loose = o, s
	}
	tight.Metadata = s.Metadata
	switch tight.narrowness() {
	case exact:
		return tight, loose.Allows(tight.Value)
	case list:
		tight.OneOf = slices.DeleteFunc(slices.Clone(tight.OneOf), func(v string) bool { return !loose.Allows(v) })
		return tight, len(tight.OneOf) > 0
	default:
		tight.Min, tight.Max = larger(s.Min, o.Min), smaller(s.Max, o.Max)
		return tight, tight.Min == nil || tight.Max == nil || *tight.Min <= *tight.Max
	}
}

// The forms of a sysctl requirement, from the widest to the narrowest.
const (
	bounds = iota
	list
	exact
)

func (s Sysctl) narrowness() int {
	switch {
	case s.Value != "":
		return exact
	case s.OneOf != nil:
		return list
	}
	return bounds
}

// Allows reports whether a parameter that reads as got satisfies the requirement. If
// both are numbers, they are compared as numbers.
func (s Sysctl) Allows(got string) bool {
	if s.Value != "" {
		return sameValue(s.Value, canonical(s.Key, got))
	}
	if s.OneOf != nil {
		return slices.ContainsFunc(s.OneOf, func(v string) bool { return sameValue(v, canonical(s.Key, got)) })
	}
	n, is := parseNumber(got)
	return is && (s.Min == nil || n >= *s.Min) && (s.Max == nil || n <= *s.Max)
}

// number returns what a parameter reads as, the nearest int64 where it is an unsigned 64-bit one: kernel.shmmax is
// 18446744073692774399 by default.
func parseNumber(got string) (n int64, is bool) {
	n, err := strconv.ParseInt(got, 10, 64)
	return n, err == nil || errors.Is(err, strconv.ErrRange)
}

func sameValue(want, got string) bool {
	if want == got {
		return true
	}
	w, err1 := strconv.ParseInt(want, 0, 64)
	g, err2 := strconv.ParseInt(got, 10, 64)
	return err1 == nil && err2 == nil && w == g
}

// Want returns the requirement in a few words: "1", "one of 1, 2", "at least 8192".
func (s Sysctl) Want() string {
	switch {
	case s.Value != "":
		return s.Value
	case s.OneOf != nil:
		return "one of " + strings.Join(s.OneOf, ", ")
	case s.Min != nil && s.Max != nil:
		return fmt.Sprintf("%d to %d", *s.Min, *s.Max)
	case s.Min != nil:
		return fmt.Sprintf("at least %d", *s.Min)
	case s.Max != nil:
		return fmt.Sprintf("at most %d", *s.Max)
	}
	return "depends on " + s.Unknown
}

// Target returns the value to write where the parameter reads as got: got itself
// where that is allowed, else the nearest allowed value.
func (s Sysctl) Target(got string) string {
	switch {
	case s.Allows(got):
		return got
	case s.Value != "":
		return s.Value
	case s.OneOf != nil:
		return s.OneOf[0]
	}
	n, is := parseNumber(got)
	if s.Min == nil && s.Max == nil {
		return got // the value depends on a fact that is not known here
	}
	if s.Max != nil && (s.Min == nil || is && n > *s.Max) {
		return strconv.FormatInt(*s.Max, 10)
	}
	return strconv.FormatInt(*s.Min, 10)
}

func larger(a, b *int64) *int64 {
	if a == nil || (b != nil && *b > *a) {
		return b
	}
	return a
}

func smaller(a, b *int64) *int64 {
	if a == nil || (b != nil && *b < *a) {
		return b
	}
	return a
}
