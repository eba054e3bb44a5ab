package lint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"nodegate/policy"
	"nodegate/policy/kernels"
)

// reading is one evaluation of a policy, on a node or with all facts unknown, and the mistakes in it.
type reading struct {
	*linter
	policy          *policy.Policy                // nil if evaluating it costs too much
	fact            func(name string) (any, bool) // nil: all are unknown
	names           bool                          // compare names with the catalogue
	diags, warnings hcl.Diagnostics
}

func (r *reading) errorf(at hcl.Range, summary, detail string, args ...any) {
	r.diags = append(r.diags, &hcl.Diagnostic{
		Severity: hcl.DiagError, Summary: summary, Detail: fmt.Sprintf(detail, args...), Subject: at.Ptr(),
	})
}

func (r *reading) warnf(at hcl.Range, summary, detail string, args ...any) {
	r.warnings = append(r.warnings, &hcl.Diagnostic{
		Severity: hcl.DiagWarning, Summary: summary, Detail: fmt.Sprintf(detail, args...), Subject: at.Ptr(),
	})
}

// read evaluates the policy and judges each requirement. It drops those with an error.
func (l *linter) read(fact func(name string) (any, bool)) *reading {
	r := &reading{linter: l, fact: fact}
	p, diags := l.Unmerged(l.blocks, fact)
	if r.policy, r.diags = p, diags; p == nil {
		return r
	}
	each(r, &p.Modules, r.checkModule)
	each(r, &p.Sysctls, r.checkSysctl)
	each(r, &p.Sysfs, r.checkSysfs)
	each(r, &p.Links, r.checkLink)
	each(r, &p.Problems, r.checkProblem)
	each(r, &p.Execs, r.checkExec)
	for _, o := range p.Probes {
		if o.Name == policy.Service {
			r.checkHoldsNothing(o.Metadata, l.at[o.Range], "it is a probe of the running node")
		}
	}
	if b, is := l.at[p.Gate.Range]; is && fact == nil {
		r.checkProgram("on_held", p.Gate.OnHeld, b.At("on_held"))
		r.checkGate(p.Gate, b)
	}
	return r
}

// each judges requirements, and removes those with an error.
func each[T interface{ About() policy.Metadata }](r *reading, all *[]T, check func(T, policy.Stanza)) {
	*all = slices.DeleteFunc(*all, func(one T) bool {
		before, b := len(r.diags), r.at[one.About().Range]
		r.names = r.fact == nil && !r.isForOthers(b)
		check(one, b)
		return len(r.diags) > before
	})
}

// merge merges the requirements, and judges them together.
func (r *reading) merge() {
	r.diags = append(r.diags, r.policy.Merge()...)
	p := r.policy
	r.checkAliases(p)
	r.checkExclusive(p)
	r.checkGlobs(p.Sysctls)
	r.checkGlobs(p.Sysfs)
	r.checkLinks(p)
	r.checkHarm(p)
	r.checkTimes(p)
}

func (r *reading) checkModule(m policy.Module, b policy.Stanza) {
	if at := b.At("absent"); m.Absent && !m.Off && b.Rank == policy.OfBuiltin && !strings.HasPrefix(at.Filename, "builtin:") {
		r.warnf(at, "Harmful value", "Module %s must not load, but %s requires it. If a node does not need it, write when = false instead.%s",
			m.Name, policy.Place(b.Range), ifWanted("Harmful value", policy.Key(m.Name)))
	}
	if m.Absent && r.fact == nil && m.Unknown != "" {
		r.errorf(b.Range, "Depends on the node", "install writes modprobe.d, and the disk may become another machine's: a block with absent "+
			"must not depend on %s. A module that a machine does not have satisfies it.", m.Unknown)
	}
	for _, o := range m.Options {
		r.checkOctal(policy.Key(o.Name), o.Value, b.At("options"))
	}
}

// checkNames reports modules and parameters that no kernel has, also of blocks with another mistake.
func (r *reading) checkNames() {
	for _, b := range r.blocks {
		key, err := policy.ParseKey(b.Name)
		r.names = !r.isForOthers(b)
		switch {
		case b.Type == "module":
			reported := func(d *hcl.Diagnostic) bool { return d.Subject != nil && *d.Subject == b.Range }
			absent, known, _ := r.Value(b.Get("absent"), nil) // a module that no kernel has does not load
			if (!known || absent.Type() != cty.Bool || absent.False()) && !slices.ContainsFunc(r.diags, reported) {
				r.checkModuleName(b)
			}
		case b.Type == "sysctl" && err == nil:
			value := ""
			if v, known, _ := r.Value(b.Get("value"), nil); known {
				if text, err := convert.Convert(v, cty.String); err == nil {
					value = text.AsString()
				}
			}
			r.checkParameterName(key, b.Range, value)
		}
	}
}

func (r *reading) checkProblem(j policy.Problem, b policy.Stanza) {
	if r.options.AtBoot != nil && !slices.Contains(r.options.AtBoot, j.Name) {
		r.checkHoldsNothing(j.Metadata, b, "it is not a check of stage boot")
	}
	if j.Severity != policy.Warn && b.Get("when") == nil {
		for _, rule := range kernels.About("check", j.Name) {
			r.warnf(b.Range, "Waits for kubelet", "%s: %s.", b.Name, rule.Effect)
		}
	}
}

// hasValueInName reports a block such as sysctl "vm.swappiness=10".
func (r *reading) hasValueInName(b policy.Stanza) bool {
	name, value, is := strings.Cut(b.Name, "=")
	if is = is && b.Type == "sysctl"; is {
		r.errorf(b.Range, "Value in the name", "Write: sysctl %q { value = %s }", strings.TrimSpace(name),
			policy.Literal(strings.TrimSpace(value)))
	}
	return is
}

func (r *reading) checkSysctl(s policy.Sysctl, b policy.Stanza) {
	r.checkWriteOnly(b, s.Key)
	r.checkPods(s, b)
	if numbers, _ := r.catalogue.Parameter(string(s.Key)); numbers != nil && slices.Equal(s.OneOf, []string{""}) {
		r.errorf(b.At("value"), "Wrong value", "%s is not empty. Write the value, or remove the block.", s.Key)
	}
	if s.Value != "" {
		r.checkValues(s.Key, []string{s.Value}, b.At("value"))
	} else {
		r.checkValues(s.Key, s.OneOf, b.At("one_of"))
	}
	for _, name := range []string{"min", "max"} {
		if b.Get(name) != nil {
			r.checkBounds(s.Key, b.At(name))
			break
		}
	}
}

func (r *reading) checkSysfs(s policy.Sysctl, b policy.Stanza) {
	r.checkWords(s, b)
	r.checkAttribute(s, b)
}

func (r *reading) checkLink(l policy.Link, b policy.Stanza) {
	for _, match := range b.Inner() {
		r.checkMatch(l.Match, match)
	}
	for _, s := range l.Of(policy.LinkSysctls) {
		r.checkParameterName(policy.Key(s.Name), b.At("sysctl"), s.Value)
		r.checkValues(policy.Key(s.Name), []string{s.Value}, b.At("sysctl"))
	}
	if l.Applies() {
		r.checkMTU(l, b)
	}
}
