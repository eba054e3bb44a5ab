package policy

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// mergeDuplicates merges requirements of one name into the first of them, with the stricter
// severity, and reports requirements that contradict each other.
func (p *Policy) mergeDuplicates(r *reader) {
	p.Modules = r.mergeModules(p.Modules)
	p.Sysctls, p.Sysfs = r.mergeSysctls(p.Sysctls), r.mergeSysctls(p.Sysfs)

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
		case probes[i].Timeout != pr.Timeout || probes[i].Want() != pr.Want():
			r.errorf(pr.Range, "Contradiction", "Probe %s is %s within %s here, but %s within %s at %s. Remove one of the two.",
				pr.Name, pr.Want(), pr.Timeout, probes[i].Want(), probes[i].Timeout, Place(probes[i].Range))
		default:
			mergeSeverity(&probes[i].Metadata, pr.Metadata)
		}
	}
	p.Probes = probes

	r.mergeExecs(p.Execs)
	p.checkLinks(r)
}

// mergeSysctls merges parameters of one name into the first of them.
func (r *reader) mergeSysctls(all []Sysctl) []Sysctl {
	sysctls := all[:0]
	for _, s := range all {
		i := slices.IndexFunc(sysctls, func(o Sysctl) bool { return o.Key == s.Key && o.Applies() })
		if i < 0 || !s.Applies() {
			sysctls = append(sysctls, s)
			continue
		}
		merged, ok := sysctls[i].intersect(s)
		if !ok {
			here, other, remedy := s, sysctls[i], "Remove one of the two."
			if here.Rank > other.Rank {
				here, other = other, here
			}
			if here.Rank < other.Rank {
				remedy = "Replace your block by: " + here.override()
			}
			r.errorf(here.Range, "Contradiction", "%s must be %s here, but %s at %s. %s",
				s.Key, here.Want(), other.Want(), Place(other.Range), remedy)
			continue
		}
		mergeSeverity(&merged.Metadata, s.Metadata)
		r.mergeDrift(s.Key.String(), &merged.Metadata, s.Metadata)
		sysctls[i] = merged
	}
	return sysctls
}

// EachModule returns one module of each name: a report has one result for each name.
func (p *Policy) EachModule() []Module {
	return oneOfEach(p.Modules, func(m Module) string { return m.Name })
}

// EachSysctl returns one parameter of each name, and after the sysctls the attributes of /sys.
func (p *Policy) EachSysctl() []Sysctl {
	all := slices.Concat(p.Sysctls, p.Sysfs)
	return oneOfEach(all, func(s Sysctl) string { return string(s.Key) })
}

// EachProbe returns one probe of each name.
func (p *Policy) EachProbe() []Probe {
	return oneOfEach(p.Probes, func(pr Probe) string { return pr.Name })
}

// oneOfEach keeps one requirement of each name. A requirement that applies is preferred to one whose when is unknown, and
// that to one that is off.
func oneOfEach[T any, P requirement[T]](all []T, name func(T) string) []T {
	var kept []T
	at := map[string]int{}
	for _, b := range all {
		i, seen := at[name(b)]
		if !seen {
			at[name(b)] = len(kept)
			kept = append(kept, b)
			continue
		}
		first, second := P(&kept[i]).metadata(), P(&b).metadata()
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

// noteUndecided records the unknown facts of another requirement of the same name. A requirement that only warns cannot hold
// kubelet and is ignored.
func (m *Metadata) noteUndecided(unknown Metadata) {
	if unknown.Severity != Warn {
		m.Undecided = unknown.Unknown
	}
}

// mergeSeverity gives a the stricter of the two severities.
func mergeSeverity(a *Metadata, b Metadata) {
	if b.Severity == Block {
		a.Severity = Block
	}
}

// mergeDrift gives a the drift attribute of b, if only b sets it, and reports two that differ.
func (r *reader) mergeDrift(what string, a *Metadata, b Metadata) {
	switch {
	case a.Drift == "":
		a.Drift = b.Drift
	case b.Drift != "" && b.Drift != a.Drift:
		r.errorf(b.Range, "Contradiction", "The drift of %s is %q here, but %q at %s. Remove one of the two.",
			what, b.Drift, a.Drift, Place(a.Range))
	}
}

// intersect returns a requirement for the values that satisfy both. It returns false if no value does.
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
		tight.Min, tight.Max = outer(s.Min, o.Min, 1), outer(s.Max, o.Max, -1)
		return tight, tight.Min == nil || tight.Max == nil || *tight.Min <= *tight.Max
	}
}

// Contradicts reports whether no value satisfies both requirements. They need not be for the same parameter.
func (s Sysctl) Contradicts(o Sysctl) bool {
	_, ok := s.intersect(o)
	return !ok
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

// Allows reports whether the current value got satisfies the requirement. If both values are numbers, they are compared as numbers.
func (s Sysctl) Allows(got string) bool {
	if s.Value != "" {
		return s.same(s.Value, got)
	}
	if s.OneOf != nil {
		return slices.ContainsFunc(s.OneOf, func(v string) bool { return s.same(v, got) })
	}
	n, is := ParseNumber(got)
	return is && (s.Min == nil || n >= *s.Min) && (s.Max == nil || n <= *s.Max)
}

// same reports whether the kernel, which returns got, has the value want.
func (s Sysctl) same(want, got string) bool {
	if s.Key.InSysfs() {
		return sameValue(canonicalAttribute(s.Key, want), canonicalAttribute(s.Key, got))
	}
	return sameValue(want, canonical(s.Key, got))
}

// ParseNumber returns a parameter's value as a number. An unsigned 64-bit value that does not fit becomes the nearest int64:
// kernel.shmmax is 18446744073692774399 by default.
func ParseNumber(got string) (n int64, is bool) {
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

// Want returns the requirement as a phrase: "1", "one of 1, 2", "at least 8192".
func (s Sysctl) Want() string {
	switch {
	case s.Value != "":
		return s.Value
	case len(s.OneOf) == 1 && s.OneOf[0] == "":
		return `""`
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

// override returns the block that gives a built-in requirement for the parameter the value of s.
func (s Sysctl) override() string {
	var attributes []string
	switch {
	case s.Value != "":
		attributes = append(attributes, "value = "+Literal(s.Value))
	case s.OneOf != nil:
		attributes = append(attributes, fmt.Sprintf("one_of = [%s]", strings.Join(Quoted(s.OneOf), ", ")))
	}
	if s.Min != nil {
		attributes = append(attributes, fmt.Sprintf("min = %d", *s.Min))
	}
	if s.Max != nil {
		attributes = append(attributes, fmt.Sprintf("max = %d", *s.Max))
	}
	name := s.Key.CheckName()
	if len(attributes) > 1 {
		return fmt.Sprintf("override %q {\n  %s\n}", name, strings.Join(attributes, "\n  "))
	}
	return fmt.Sprintf("override %q { %s }", name, attributes[0])
}

// Literal returns a value as a policy has it: numbers without quotes.
func Literal(value string) string {
	if _, err := strconv.ParseInt(value, 10, 64); err == nil {
		return value
	}
	return strconv.Quote(value)
}

// Target returns the value to write if the current value is got: got itself if it is allowed, otherwise the nearest allowed value.
func (s Sysctl) Target(got string) string {
	switch {
	case s.Allows(got):
		return got
	case s.Value != "":
		return s.Value
	case s.OneOf != nil:
		return s.OneOf[0]
	}
	n, is := ParseNumber(got)
	if s.Min == nil && s.Max == nil {
		return got // the value depends on an unknown fact
	}
	if s.Max != nil && (s.Min == nil || is && n > *s.Max) {
		return strconv.FormatInt(*s.Max, 10)
	}
	return strconv.FormatInt(*s.Min, 10)
}

// outer returns the bound that is further in the direction of sign.
func outer(a, b *int64, sign int) *int64 {
	if a == nil || b != nil && sign*cmp.Compare(*b, *a) > 0 {
		return b
	}
	return a
}
