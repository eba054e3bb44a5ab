package catalog

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"nodegate/internal/audit"
	"nodegate/internal/verdict"
	"nodegate/policy"
)

// Explanation describes a check: a requirement, a problem or a finding of the audit.
type Explanation struct {
	Name     string   `json:"name"`               // of the check
	Breaks   string   `json:"breaks,omitempty"`   // the fault, or why it is required
	Symptom  string   `json:"symptom,omitempty"`  // what users see
	How      string   `json:"detected,omitempty"` // how it is detected
	Remedy   string   `json:"remedy,omitempty"`   // what to do
	TradeOff string   `json:"tradeOff,omitempty"` // the cost of the remedy
	Source   string   `json:"source,omitempty"`   // where this is documented
	In       []string `json:"policies,omitempty"` // the built-in policies that contain it
	Stages   string   `json:"stages"`             // when it can be checked, separated by commas
	Severity string   `json:"severity"`           // block or warn
	Same     []string `json:"same,omitempty"`     // names of the same fault elsewhere
}

// Write prints the explanation.
func (e Explanation) Write(w io.Writer) error {
	fmt.Fprintln(w, e.Name)
	for _, part := range []struct{ label, text string }{
		{"breaks", e.Breaks}, {"symptom", e.Symptom}, {"detected", e.How}, {"remedy", e.Remedy}, {"trade-off", e.TradeOff},
		{"same as", strings.Join(e.Same, ", ")}, {"severity", e.Severity}, {"stages", e.Stages}, {"policies", strings.Join(e.In, ", ")},
		{"source", e.Source},
	} {
		if part.text != "" {
			if _, err := fmt.Fprintf(w, "  %-10s %s\n", part.label, part.text); err != nil {
				return err
			}
		}
	}
	return nil
}

// Explain returns every requirement of the built-in policies, every problem and every finding of
// the audit, in this order.
func Explain() ([]Explanation, error) {
	var all []Explanation
	uses := map[string][]string{}
	add := func(policyName string, e Explanation) {
		if _, known := uses[e.Name]; !known {
			all = append(all, e)
		}
		uses[e.Name] = append(uses[e.Name], policyName)
	}
	for _, name := range policy.Builtins() {
		f, err := policy.Builtin(name)
		if err != nil {
			return nil, err
		}
		p, diags := policy.Load([]policy.File{f}, Known())
		if diags.HasErrors() {
			return nil, diags
		}
		explainRequirements(p, func(e Explanation) { add(name, e) })
		for _, j := range p.Problems {
			uses[j.Name] = append(uses[j.Name], name)
		}
	}
	for i := range all {
		all[i].In = uses[all[i].Name]
	}
	same := map[string][]string{} // findings of the audit by check
	for _, k := range audit.Kinds() {
		if check := audit.CheckOf(k.Name); check != "" {
			same[check] = append(same[check], k.Name)
		}
	}
	for _, j := range Problems() {
		var stages []string
		for _, s := range j.Stages {
			stages = append(stages, string(s))
		}
		all = append(all, Explanation{
			Name: j.Name, Breaks: j.Detects, Symptom: j.Symptom, How: j.How, Remedy: j.Remedy, TradeOff: j.TradeOff, Source: j.Ref,
			In: uses[j.Name], Stages: strings.Join(stages, ", "), Severity: string(j.Severity),
			Same: same[j.Name],
		})
	}
	all = append(all, Explanation{
		Name: "kubeproxy.audit", Breaks: "kube-proxy's rules on this node differ from the API, or kube-proxy does not run.",
		Symptom: "Some connections to a Service fail, on some nodes, for hours, while kube-proxy's healthz endpoint reports success.",
		How: "If the policy has an audit block, `nodegate watch` follows the API and reads the rules after each change. It reports a " +
			"difference only after it has persisted for the settle time.",
		Remedy: "run `nodegate audit --kubeconfig FILE` and follow the remedy of each finding",
		Source: "https://github.com/kubernetes/kubernetes/issues/87615", Stages: "run", Severity: "block",
	})
	for _, k := range audit.Kinds() {
		severity := "block"
		if k.Verdict == verdict.Warn {
			severity = "warn"
		}
		all = append(all, Explanation{
			Name: k.Name, Breaks: k.Summary, How: "`nodegate audit` reads kube-proxy's rules.", Remedy: k.Remedy, Source: k.Ref,
			Stages: "run", Severity: severity,
		})
		if check := audit.CheckOf(k.Name); check != "" {
			all[len(all)-1].Same = []string{check}
		}
	}
	return all, nil
}

// ExplainWith adds the requirements of the operator's policy at the beginning. They replace
// built-in ones of the same name.
func ExplainWith(p *policy.Policy, all []Explanation) []Explanation {
	var own []Explanation
	explainRequirements(p, func(e Explanation) {
		i := slices.IndexFunc(all, func(o Explanation) bool { return o.Name == e.Name })
		if i < 0 {
			own = append(own, e)
			return
		}
		e.In = all[i].In
		all[i] = e
	})
	return slices.Concat(own, all)
}

func explainRequirements(p *policy.Policy, add func(Explanation)) {
	explain := func(name string, a policy.Metadata, how, remedy string) {
		add(Explanation{
			Name: name, Breaks: a.Reason, Symptom: a.Symptom, How: how, Remedy: remedy, TradeOff: a.TradeOff, Source: a.Ref,
			Stages: "boot, run", Severity: string(a.Severity),
		})
	}
	for _, m := range p.Modules {
		if m.Absent {
			explain("module."+m.Name, m.Metadata, "Reads /sys/module, modprobe.d and /lib/modules: the module must not be loaded, "+
				"and `install "+m.Name+" /bin/false` in modprobe.d must prevent it.", "run `nodegate install`, which writes modprobe.d, then "+
				"`modprobe -r "+m.Name+"`")
			continue
		}
		explain("module."+m.Name, m.Metadata, "Reads /sys/module, the files that the module adds to /proc, and /lib/modules.",
			"run `nodegate apply` or `modprobe "+m.Name+"`; in an image, install the package that contains it")
	}
	for _, s := range p.Sysctls {
		how := "/proc/sys/" + string(s.Key) + " must be " + s.Want() + "."
		if s.Key.IsOwnOfPods() {
			how += " It counts for " + policy.NotForPods + "."
		}
		explain("sysctl."+s.Key.String(), s.Metadata, how, sysctlRemedy(s))
	}
	for _, s := range p.Sysfs {
		explain(s.Key.CheckName(), s.Metadata, s.Key.File()+" must be "+s.Want()+".", "run `nodegate apply`")
	}
	for _, e := range p.Execs {
		explain(e.Name, e.Metadata, "Runs "+e.Program()+": exit status 0 passes, 1 fails, any other is unknown.",
			"correct what the program reports")
	}
	for _, pr := range p.Probes {
		explain("probe."+pr.Name, pr.Metadata, "Runs `nodegate probe "+pr.Name+"`.", "follow the remedy of `nodegate probe "+pr.Name+"`")
	}
	for _, l := range p.Links {
		explain("link."+l.Name, l.Metadata, "Reads netlink and ethtool; every matching link must have "+l.Want()+".",
			linkRemedy(l))
	}
}

// sysctlRemedy returns what to do about a parameter, with the line for sysctl.d. A glob stands for several parameters, which need apply.
func sysctlRemedy(s policy.Sysctl) string {
	const apply = "run `nodegate apply`"
	value := s.Value
	switch {
	case value == "" && s.Min != nil:
		value = fmt.Sprint(*s.Min)
	case value == "" && s.Max != nil:
		value = fmt.Sprint(*s.Max)
	}
	if value == "" || s.Key.IsGlob() {
		return apply
	}
	return apply + ", or write `" + s.Key.String() + " = " + value + "` to a file in /etc/sysctl.d and run `sysctl --system`"
}

// linkRemedy names ethtool only for offloads, and ip only for a scalar.
func linkRemedy(l policy.Link) string {
	remedy := "run `nodegate apply`"
	sets := ""
	for _, o := range l.Of(policy.Offload) {
		sets += " " + o.Name + " " + o.Value
	}
	if sets != "" {
		remedy += ", or `ethtool -K LINK" + sets + "`"
	}
	for _, s := range l.Settings {
		if s.Kind.IsScalar() {
			remedy += ", or `" + s.Kind.Command("LINK", s.Value) + "`"
		}
	}
	return remedy
}
