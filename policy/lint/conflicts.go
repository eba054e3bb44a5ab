package lint

import (
	"path"
	"slices"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"nodegate/policy"
	"nodegate/policy/kernels"
)

// checkGlobs reports a value that contradicts a glob which matches the same parameter. In sysctl.d(5) the exact name would
// take precedence; the gate would write the two values in turn until its budget is used up.
func (r *reading) checkGlobs(all []policy.Sysctl) {
	for _, g := range those(all, func(s policy.Sysctl) bool { return s.Key.IsGlob() && s.Applies() }) {
		for _, s := range all {
			// A glob that matches the text of another glob covers all its parameters: * matches eth*.
			matches, _ := path.Match(string(g.Key), string(s.Key))
			if !matches || s.Key == g.Key || !s.Applies() {
				continue
			}
			if g.Contradicts(s) {
				r.errorf(s.Range, "Contradiction", "%s must be %s here, but %s, which matches it too, must be %s at %s. Remove one of the two, "+
					"or list the other parameters one by one.", s.Key, s.Want(), g.Key, g.Want(), policy.Place(g.Range))
			}
		}
	}
}

// checkTimes reports a program and a probe that take longer than one start of kubelet.
func (r *reading) checkTimes(p *policy.Policy) {
	report := func(m policy.Metadata, what string, timeout time.Duration) {
		if m.Applies() && p.Gate.Budget > 0 && timeout >= p.Gate.Budget {
			r.warnf(m.Range, "Longer than the budget", "%s may take %s, but the gate's budget is %s (%s): the gate would decide without its "+
				"result. Shorten timeout, or lengthen budget.", what, timeout, p.Gate.Budget, placeOf(p.Gate))
		}
	}
	for _, e := range p.Execs {
		if slices.Contains(e.Stages, "boot") {
			report(e.Metadata, e.Name, e.Timeout)
		}
	}
	for _, o := range p.Probes {
		if o.Name == policy.Service {
			continue // the gate does not run it
		}
		report(o.Metadata, "probe "+o.Name, o.Timeout)
	}
}

// placeOf returns the gate's position, or words if no file has one.
func placeOf(g policy.Gate) string {
	if g.Range.Filename == "" {
		return "the default"
	}
	return policy.Place(g.Range)
}

// pairs returns the rules of a kind that name two parameters.
func pairs(kind string) (all [][2]policy.Key) {
	for _, rule := range kernels.Rules(kind) {
		all = append(all, [2]policy.Key{policy.Key(rule.Words[0]), policy.Key(rule.Words[1])})
	}
	return all
}

// checkAliases reports two values for one parameter that has two names.
func (r *reading) checkAliases(p *policy.Policy) {
	for _, names := range pairs("alias") {
		one := findSysctl(p, names[0])
		for _, s := range p.Sysctls {
			other, _ := path.Match(string(s.Key), string(names[1]))
			if one == nil || !other || !s.Applies() {
				continue
			}
			if one.Contradicts(s) {
				r.errorf(s.Range, "Contradiction", "%s must be %s here, but %s, which is the same parameter as %s, must be %s at %s. Remove one "+
					"of the two.", s.Key, s.Want(), names[0], names[1], one.Want(), policy.Place(one.Range))
			}
		}
	}
}

// checkExclusive reports values for both parameters of a pair in which the kernel sets one to 0 when the other is written.
// The gate would write the two in turn until its budget is used up.
func (r *reading) checkExclusive(p *policy.Policy) {
	for _, names := range pairs("exclusive") {
		one, other := findSysctl(p, names[0]), findSysctl(p, names[1])
		if one != nil && other != nil && !one.Allows("0") && !other.Allows("0") {
			r.errorf(other.Range, "Contradiction", "%s must be %s here and %s must be %s at %s, but the kernel sets one to 0 when the other "+
				"is written. Remove one of the two.", other.Key, other.Want(), one.Key, one.Want(), policy.Place(one.Range))
		}
	}
}

// findSysctl returns the requirement for a parameter that applies, or nil.
func findSysctl(p *policy.Policy, key policy.Key) *policy.Sysctl {
	if i := slices.IndexFunc(p.Sysctls, func(s policy.Sysctl) bool { return s.Key == key && s.Applies() }); i >= 0 {
		return &p.Sysctls[i]
	}
	return nil
}

// findIneffective reports blocks that seem meant to switch off a built-in requirement but do not.
func (l *linter) findIneffective() hcl.Diagnostics {
	r := &reading{linter: l}
	warns := func(b policy.Stanza) bool {
		v, known, _ := l.Value(b.Get("severity"), nil)
		return known && v.RawEquals(cty.StringVal(string(policy.Warn)))
	}
	for _, b := range l.blocks {
		if b.IsBuiltin() || b.CheckName() == "" {
			continue
		}
		v, known, _ := l.Value(b.Get("when"), nil)
		off := known && v.Type() == cty.Bool && v.False()
		for _, of := range l.blocks {
			adds := (b.Type == "sysctl" || b.Type == "sysfs") && !off // it adds its own value when it applies
			switch merged := b.Type != "check" && b.Type != "link"; {
			case of.Rank <= b.Rank || of.CheckName() != b.CheckName() || of.Get("when") != nil:
			case b.Get("when") != nil && !adds:
				r.warnf(b.At("when"), "No effect", "%s is still required at %s, without a when. To switch that off, write: override %q { when = ... }.",
					b.CheckName(), policy.Place(of.Range), b.CheckName())
			case merged && !off && warns(b) && !warns(of):
				r.warnf(b.At("severity"), "No effect", "%s still blocks, because of %s. To change that, write: override %[1]q { severity = \"warn\" }.",
					b.CheckName(), policy.Place(of.Range))
			}
		}
	}
	return r.warnings
}
