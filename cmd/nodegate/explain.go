package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/checks/kubeproxy"
	"nodegate/policy"
)

// explanation is what there is to say of a check, wherever it comes from.
type explanation struct {
	Name, Breaks, Symptom, How, Remedy, TradeOff, Source string
	In                                                   []string // the built-in policies that ask for it
	Stages                                               string
	Severity                                             string
}

func newExplain() *cobra.Command {
	return &cobra.Command{
		Use:   "explain [NAME]",
		Short: "Say what a check is for: symptom, detection, remedy, trade-off, source",
		Example: `  nodegate explain                                  list every check
  nodegate explain sysctl.net.ipv4.ip_forward
  nodegate explain vxlan.checksum
  nodegate explain kubeproxy.dispatch.probability`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			all, err := explanations()
			if err != nil {
				return err
			}
			if len(args) == 0 {
				for _, e := range all {
					fmt.Fprintf(c.OutOrStdout(), "%-52s %s\n", e.Name, e.Breaks)
				}
				return nil
			}
			i := slices.IndexFunc(all, func(e explanation) bool { return e.Name == args[0] })
			if i < 0 {
				return fmt.Errorf("there is no check %q; `nodegate explain` lists them", args[0])
			}
			return all[i].write(c.OutOrStdout())
		},
	}
}

func (e explanation) write(w io.Writer) error {
	fmt.Fprintln(w, e.Name)
	for _, part := range []struct{ label, text string }{
		{"breaks", e.Breaks}, {"symptom", e.Symptom}, {"detected", e.How}, {"remedy", e.Remedy}, {"trade-off", e.TradeOff},
		{"severity", e.Severity}, {"stages", e.Stages}, {"policies", strings.Join(e.In, ", ")}, {"source", e.Source},
	} {
		if part.text != "" {
			if _, err := fmt.Fprintf(w, "  %-10s %s\n", part.label, part.text); err != nil {
				return err
			}
		}
	}
	return nil
}

// explanations is every requirement of the built-in policies, every judgement
// and every finding of the audit, in this order.
func explanations() ([]explanation, error) {
	var all []explanation
	uses := map[string][]string{}
	add := func(policyName string, e explanation) {
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
		p, diags := policy.Load([]policy.File{f}, policy.Options{Checks: catalog.Names()})
		if diags.HasErrors() {
			return nil, diags
		}
		explainRequirements(p, func(e explanation) { add(name, e) })
		for _, j := range p.Problems {
			uses[j.Name] = append(uses[j.Name], name)
		}
	}
	for i := range all {
		all[i].In = uses[all[i].Name]
	}
	for _, j := range catalog.Problems() {
		var stages []string
		for _, s := range j.Stages {
			stages = append(stages, string(s))
		}
		all = append(all, explanation{
			Name: j.Name, Breaks: j.Detects, Symptom: j.Symptom, How: j.How, Remedy: j.Remedy, TradeOff: j.TradeOff, Source: j.Ref,
			In: uses[j.Name], Stages: strings.Join(stages, ", "), Severity: string(j.Severity),
		})
	}
	for _, k := range kubeproxy.Kinds() {
		severity := "block"
		if k.Verdict == checks.Warn {
			severity = "warn"
		}
		all = append(all, explanation{
			Name: k.Name, Breaks: k.Summary, How: "`nodegate audit` reads kube-proxy's rules", Remedy: k.Remedy, Source: k.Ref, Stages: "run", Severity: severity,
		})
	}
	return all, nil
}

func explainRequirements(p *policy.Policy, add func(explanation)) {
	about := func(name string, a policy.Metadata, how, remedy string) {
		add(explanation{
			Name: name, Breaks: a.Reason, Symptom: a.Symptom, How: how, Remedy: remedy, TradeOff: a.TradeOff, Source: a.Ref,
			Stages: "boot, run", Severity: string(a.Severity),
		})
	}
	for _, m := range p.Modules {
		about("module."+m.Name, m.Metadata, "/sys/module, what the module provides in /proc, and /lib/modules", "`nodegate apply`, or modprobe "+m.Name+"; in an image, the package that has it")
	}
	for _, s := range p.Sysctls {
		about("sysctl."+s.Key.String(), s.Metadata, "/proc/sys/"+string(s.Key)+" is "+s.Want(), "`nodegate apply`, or sysctl -w '"+s.Key.String()+"=...'")
	}
	for _, l := range p.Links {
		about("link."+l.Name, l.Metadata, "netlink and ethtool, on every link that matches: "+l.Want(), "`nodegate apply`, or ethtool -K")
	}
}
