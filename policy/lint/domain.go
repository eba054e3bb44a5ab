package lint

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"nodegate/policy"
	"nodegate/policy/kernels"
)

// asked is one value that a block requires on nodes with some of the recorded kernels.
type asked struct {
	key     policy.Key
	target  string            // the value that apply writes
	allows  func(string) bool // whether a stored value satisfies the block
	at      hcl.Range
	kernels []string // versions
	on      string   // describes the first node, if the value depends on it
	others  bool     // the block is for other distributions
}

// checkDomains reports values that recorded kernels refuse or never give back, and parameters that only some of them have. A block is
// judged for the kernels that its conditions include.
func (v *survey) checkDomains() hcl.Diagnostics {
	r := &reading{}
	for _, b := range v.blocks {
		if b.Type != "sysctl" && (b.Type != "link" || b.Get("sysctl") == nil) {
			continue
		}
		if key, err := policy.ParseKey(b.Name); b.Type == "sysctl" {
			if err != nil || v.catalogue.Domains(string(key)) == nil {
				continue
			}
			v.checkInterface(r, b, key)
		}
		one := &reading{}
		for _, a := range v.askedOn(b) {
			v.judge(one, b, a)
		}
		reported := map[string]bool{} // one value is enough of those that depend on facts
		for _, d := range slices.Concat(one.diags, one.warnings) {
			if key := d.Summary + d.Subject.String(); !reported[key] {
				reported[key] = true
				r.warnings = append(r.warnings, d)
			}
		}
	}
	return r.warnings
}

// mostMemory is the size of the nodes on which a value computed from node.memory is judged: few of these formulas are written for more,
// and on a node with terabytes most exceed the range that the kernel accepts.
const mostMemory = 16 << 30

// askedOn returns the values that a block requires on the recorded kernels.
func (v *survey) askedOn(b policy.Stanza) []asked {
	var all []asked
	versions := v.catalogue.Versions()
	others := b.Get("when") != nil && v.isForOthers(b)
	onEach := !slices.ContainsFunc(b.Expressions(), readsKernel) && !readsAny(b.Expressions(), "os.version")
	computed := readsAny(valueExpressions(b), "node.memory")
	for _, n := range v.answers[b.Range] {
		kernels := versions
		if !onEach {
			version, _ := n.facts["kernel.version"].(string)
			kernels = recordedOf(version, versions)
		}
		if memory, _ := n.facts["node.memory"].(int64); kernels == nil || computed && memory > mostMemory {
			continue
		}
		for _, a := range n.asked(b) {
			same := slices.IndexFunc(all, func(o asked) bool { return o.key == a.key && o.target == a.target })
			if same < 0 {
				same, a.others, a.on = len(all), others, onNode(" on %s", n.facts, valueExpressions(b)...)
				all = append(all, a)
			}
			for _, version := range kernels {
				if !slices.Contains(all[same].kernels, version) {
					all[same].kernels = append(all[same].kernels, version)
				}
			}
		}
	}
	return all
}

// recordedOf returns the one of the recorded versions that a kernel's version begins with, or nil.
func recordedOf(version string, recorded []string) []string {
	i := slices.IndexFunc(recorded, func(v string) bool { return strings.HasPrefix(version+".", v+".") })
	if i < 0 {
		return nil
	}
	return recorded[i : i+1]
}

// asked returns the values that a block requires.
func (n answer) asked(b policy.Stanza) []asked {
	var all []asked
	for _, s := range n.Sysctls {
		for _, name := range []string{"value", "one_of", "min", "max"} {
			if b.Get(name) == nil {
				continue
			}
			a := asked{key: s.Key, allows: s.Allows, at: b.At(name)}
			switch name {
			case "min":
				a.target = fmt.Sprint(*s.Min)
			case "max":
				a.target = fmt.Sprint(*s.Max)
			default:
				a.target = s.Target("")
			}
			all = append(all, a)
		}
	}
	for _, k := range n.Links {
		for _, s := range k.Of(policy.LinkSysctls) {
			all = append(all, asked{key: policy.Key(s.Name), target: s.Value, allows: policy.Sysctl{Value: s.Value}.Allows, at: b.At("sysctl")})
		}
	}
	return all
}

// judge reports a value that some of the kernels refuse.
func (l *linter) judge(r *reading, b policy.Stanza, a asked) {
	domains := l.catalogue.Domains(string(a.key))
	if domains == nil || isZeroAfterBoot(a.key) && a.allows("0") {
		return
	}
	answers := l.answersOn(domains, b, a)
	floor := b.Get("min") != nil && b.At("min") == a.at
	if answers.bad != nil {
		r.warnings = append(r.warnings, answers.worst.on(answers.bad, b, a, answers.fine, len(answers.bad) == len(domains)))
	} else if why := mistaken(a.key, a.target, floor); why != "" && !l.isAllowed(string(a.key)) {
		r.warnf(a.at, "Harmful value", "%s = %s%s: %s.%s", a.key, a.target, a.on, why, ifWanted("Harmful value", a.key))
	}
	positive := func(d kernels.Domain) bool { low, _, known := d.Limits(); return known && low.Sign() >= 0 }
	if n, is := policy.ParseNumber(a.target); is && n < 0 && floor && a.on == "" && len(domains) == len(those(domains, positive)) {
		r.warnf(a.at, "Holds nothing", "%s is never negative, so min = %d allows every value. Write the smallest right value.", a.key, n)
	}
	if answers.oneWay != nil && !l.isAllowed(string(a.key)) {
		loads := ""
		if a.key == "kernel/modules_disabled" {
			loads = " No module loads any more, so load all that the node needs before."
		}
		r.warnf(a.at, "Cannot be undone", "%s = %s: the old value is refused by Linux %s until the next boot, so `nodegate revert` cannot "+
			"restore it.%s%s", a.key, a.target, inWords(answers.oneWay), loads, ifWanted("Cannot be undone", a.key))
	}
	if answers.lack && !a.others && b.Type == "sysctl" && !strings.ContainsAny(b.Name, "*?[") {
		r.warnf(b.Range, "Not on every kernel", "%s: of the recorded kernels, only in Linux %s. A node with another one is held. Write "+
			"when = %s.", a.key, inWords(versionsOf(domains)), l.whenFor(versionsOf(domains)))
	}
}

// kernelAnswers are the answers of several kernels to one value.
type kernelAnswers struct {
	worst       fault
	bad, oneWay []string // versions that have a fault, or keep the value until the next boot
	lack, fine  bool     // one lacks the parameter, one stores the value
}

// answersOn returns the answers of the kernels that a block is for.
func (l *linter) answersOn(domains []kernels.Domain, b policy.Stanza, a asked) (all kernelAnswers) {
	for _, version := range a.kernels {
		i := slices.IndexFunc(domains, func(d kernels.Domain) bool { return d.Version == version })
		if i < 0 {
			all.lack = true
			continue
		}
		found, answer := l.faultOf(domains[i], b, a)
		if found.summary != "" {
			all.worst, all.bad = found, append(all.bad, version)
			continue
		}
		all.fine = all.fine || answer == kernels.Stored
		if domains[i].OneWay(a.target) && !coupled(a.key) {
			all.oneWay = append(all.oneWay, version)
		}
	}
	return all
}

// fault describes a value that a kernel does not keep.
type fault struct{ summary, why, advice string }

// faultOf returns the fault of a value on one kernel, if any, and the kernel's answer.
func (l *linter) faultOf(d kernels.Domain, b policy.Stanza, a asked) (fault, kernels.Answer) {
	switch answer := l.answer(d, a); {
	case answer == kernels.Refused && !withinBound(d, a, b):
		return fault{"Refused by the kernel", "refused by", acceptedBy(d)}, answer
	case answer == kernels.ReadOnly && !slices.Contains([]policy.Key{"crypto/fips_enabled", "kernel/ostype"}, a.key): // true without a write
		return fault{"Read-only", "read-only on", ": no program can write it. Remove it."}, answer
	default:
		return fault{}, answer
	}
}

// on reports the fault of some kernels. It is a warning if another kernel that the block is for may be fine.
func (f fault) on(bad []string, b policy.Stanza, a asked, fine, onAll bool) *hcl.Diagnostic {
	severity, when := hcl.DiagError, b.Get("when")
	switch {
	case fine && (when == nil || !readsKernel(when)):
		severity = hcl.DiagWarning
	case f.summary == "Read-only" && !onAll: // another build may accept it
		severity = hcl.DiagWarning
	case a.others:
		severity = hcl.DiagWarning
	}
	if a.others {
		f.advice = " of Debian. Another distribution's kernel may differ."
	}
	return &hcl.Diagnostic{Severity: severity, Summary: f.summary, Subject: a.at.Ptr(),
		Detail: fmt.Sprintf("%s = %s%s: %s Linux %s%s", a.key, a.target, a.on, f.why, inWords(bad), f.advice)}
}

// answer returns a kernel's answer to the value that a block asks for.
func (l *linter) answer(d kernels.Domain, a asked) kernels.Answer {
	answer := d.Answer(a.target)
	for _, pair := range pairs("dependent") { // the recorded limits belong to the other's default
		for i, key := range pair {
			if answer == kernels.Refused && key == a.key && l.hasSysctl(pair[1-i]) {
				return kernels.Unknown
			}
		}
	}
	return answer
}

// hasSysctl reports whether a block sets a parameter, on any node.
func (l *linter) hasSysctl(key policy.Key) bool {
	return slices.ContainsFunc(l.blocks, func(b policy.Stanza) bool { return b.CheckName() == key.CheckName() })
}

// withinBound reports whether some accepted number satisfies a block with a bound: min = 0 of a parameter that is at least 1.
func withinBound(d kernels.Domain, a asked, b policy.Stanza) bool {
	if b.Get("min") == nil && b.Get("max") == nil {
		return false
	}
	low, high, known := d.Limits()
	return !known || a.allows(low.String()) || a.allows(high.String()) || b.Get("min") != nil && b.Get("max") != nil
}

// coupled reports whether the kernel restores the parameter's value after boot when another one is written.
func coupled(key policy.Key) bool {
	return slices.ContainsFunc(pairs("exclusive"), func(pair [2]policy.Key) bool { return key == pair[0] || key == pair[1] })
}

// isZeroAfterBoot reports whether a parameter is 0 after boot, although 0 cannot be written.
func isZeroAfterBoot(key policy.Key) bool {
	return slices.Contains(kernels.Rules("zero")[0].Words, string(key))
}

// acceptedBy returns the end of a sentence with the numbers that a kernel accepts.
func acceptedBy(d kernels.Domain) string {
	if accepted := d.Accepted(); accepted != "" {
		return "; accepted: " + accepted + "."
	}
	return "."
}

// readsKernel reports whether an expression depends on the kernel.
func readsKernel(e hcl.Expression) bool {
	return slices.ContainsFunc(e.Variables(), func(t hcl.Traversal) bool { return t.RootName() == "kernel" })
}

// readsAny reports whether expressions depend on a fact.
func readsAny(all []hcl.Expression, fact string) bool {
	return slices.ContainsFunc(all, func(e hcl.Expression) bool {
		return slices.ContainsFunc(e.Variables(), func(t hcl.Traversal) bool { return policy.FactOf(t) == fact })
	})
}

// valueExpressions returns the expressions of a block without its when.
func valueExpressions(b policy.Stanza) []hcl.Expression {
	b.Attrs = maps.Clone(b.Attrs)
	delete(b.Attrs, "when")
	return b.Expressions()
}

func versionsOf(domains []kernels.Domain) []string {
	var all []string
	for _, d := range domains {
		all = append(all, d.Version)
	}
	return all
}

// whenFor returns a condition that includes the recorded kernels of these versions, which are neighbours, and no other recorded one.
func (l *linter) whenFor(versions []string) string {
	all := l.catalogue.Versions()
	first, last := slices.Index(all, versions[0]), slices.Index(all, versions[len(versions)-1])
	var terms []string
	if first > 0 {
		terms = append(terms, fmt.Sprintf("version_at_least(kernel.version, %q)", all[first]))
	}
	if last < len(all)-1 {
		terms = append(terms, fmt.Sprintf("!version_at_least(kernel.version, %q)", all[last+1]))
	}
	return strings.Join(terms, " && ")
}

// inWords joins words for a sentence: "5.10, 6.1 and 6.12".
func inWords(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}

// checkInterface reports a blocking parameter of one interface, which a node without it does not have.
func (v *survey) checkInterface(r *reading, b policy.Stanza, key policy.Key) {
	parts := strings.Split(string(key), "/")
	everywhere := []string{"all", "default", "lo"}
	if len(parts) < 5 || parts[2] != "conf" && parts[2] != "neigh" || slices.Contains(everywhere, parts[3]) || key.IsGlob() {
		return
	}
	for _, s := range v.merged.Sysctls {
		if s.Key == key && s.Severity == policy.Block && s.Range == b.Range {
			link := parts[3]
			parts[3] = "*"
			r.warnf(b.Range, "Only with this interface", "%s exists only while the node has %s: a node without it is held. For any interface of "+
				"that name write:\nlink %[2]q {\n  match { name = %[2]q }\n  sysctl = { %q = %s }\n}\n",
				key, link, policy.Key(strings.Join(parts, "/")), policy.Literal(s.Target("")))
		}
	}
}
