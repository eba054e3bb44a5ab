package policy

import (
	"cmp"
	"fmt"
	"io"
	"slices"
)

// Requirement is one demand of a merged policy.
type Requirement struct {
	Name     string   `json:"name"`             // of the check, or gate, publish, audit
	Want     string   `json:"want"`             // the required state
	Severity Severity `json:"severity"`         // block or warn
	Source   string   `json:"source"`           // file and line
	Reason   string   `json:"reason,omitempty"` // why it is required
	Ref      string   `json:"ref,omitempty"`    // where the reason is documented
}

// Effective returns every requirement of the merged policy.
func (p *Policy) Effective() []Requirement {
	all := []Requirement{}
	add := func(name, want string, a Metadata) {
		switch {
		case a.Off:
			want = "off on this node (when is false)"
		case a.Unknown != "":
			want = "depends on " + a.Unknown + ", which is unknown here"
		}
		all = append(all, Requirement{name, want, cmp.Or(a.Severity, Block), a.Source(), a.Reason, a.Ref})
	}
	for _, m := range p.Modules {
		add("module."+m.Name, m.Want(), m.Metadata)
	}
	for _, s := range slices.Concat(p.Sysctls, p.Sysfs) {
		add(s.Key.CheckName(), s.Want(), s.Metadata)
	}
	for _, l := range p.Links {
		add("link."+l.Name, l.Want()+" ("+l.Match.String()+")", l.Metadata)
	}
	for _, j := range p.Problems {
		add(j.Name, "inspected", j.Metadata)
	}
	for _, e := range p.Execs {
		add(e.Name, e.Program()+" exits with status 0 within "+e.Timeout.String(), e.Metadata)
	}
	for _, pr := range p.Probes {
		add("probe."+pr.Name, pr.Want()+" within "+pr.Timeout.String(), pr.Metadata)
	}
	g := p.Gate
	waits := g.Waits()
	if g.Enforce != Warn {
		waits += fmt.Sprintf("; %s for a start, checked every %s, repair %t", g.Budget, g.Interval, g.Repair)
	}
	add("gate", g.Unit+" "+waits, Metadata{Range: g.Range})
	if p.Publish.Condition != "" {
		add("publish", p.Publish.describe(), Metadata{Range: p.Publish.Range})
	}
	if p.Audit.On {
		add("audit", p.Audit.describe(), Metadata{Range: p.Audit.Range, Severity: p.Audit.Severity})
	}
	return all
}

// Change is a requirement that differs between two policies.
type Change struct {
	Name string       `json:"name"`
	Old  *Requirement `json:"old,omitempty"` // none: it is new
	New  *Requirement `json:"new,omitempty"` // none: it has gone
}

// ChangesFrom returns the requirements of p that an older policy has not or states in another way.
func (p *Policy) ChangesFrom(old *Policy) []Change {
	all := []Change{}
	before, now := old.Effective(), p.Effective()
	find := func(in []Requirement, name string) *Requirement {
		if i := slices.IndexFunc(in, func(r Requirement) bool { return r.Name == name }); i >= 0 {
			return &in[i]
		}
		return nil
	}
	for _, r := range now {
		if was := find(before, r.Name); was == nil || was.Want != r.Want || was.Severity != r.Severity {
			all = append(all, Change{r.Name, was, find(now, r.Name)})
		}
	}
	for _, r := range before {
		if find(now, r.Name) == nil {
			all = append(all, Change{r.Name, find(before, r.Name), nil})
		}
	}
	return all
}

// String returns the change on one line: "~ sysctl.vm.swappiness: 60 -> 10".
func (c Change) String() string {
	switch {
	case c.Old == nil:
		return fmt.Sprintf("+ %s: %s", c.Name, c.New)
	case c.New == nil:
		return fmt.Sprintf("- %s: %s", c.Name, c.Old)
	}
	return fmt.Sprintf("~ %s: %s -> %s", c.Name, c.Old, c.New)
}

// String returns the required state, and its severity unless that is block: "4096 [warn]".
func (r Requirement) String() string {
	if r.Severity == Warn {
		return r.Want + "  [warn]"
	}
	return r.Want
}

// Waits describes how long the gate holds its unit: "is held until it passes".
func (g Gate) Waits() string {
	switch {
	case g.Enforce == Warn:
		return `is never held (enforce = "warn"): the gate only reports`
	case g.OnTimeout == Release:
		return fmt.Sprintf("is held for up to %s, and then starts unproven", g.Budget)
	}
	return "is held until the node passes"
}

// WriteEffective lists every requirement of the merged policy with its source.
func (p *Policy) WriteEffective(w io.Writer) error {
	lines := p.Effective()
	name, want := 0, 0
	for i, l := range lines {
		lines[i].Want = l.String()
		name, want = max(name, len(l.Name)), max(want, min(len(lines[i].Want), 60))
	}
	for _, l := range lines {
		if _, err := fmt.Fprintf(w, "%-*s  %-*s  %s\n", name, l.Name, want, l.Want, l.Source); err != nil {
			return err
		}
	}
	return nil
}
