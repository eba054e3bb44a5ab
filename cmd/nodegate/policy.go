package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"nodegate/policy"
)

func newPolicy() *cobra.Command {
	c := &cobra.Command{
		Use:   "policy",
		Short: "Show the built-in policies, or all that is in force and where it comes from",
		Example: `  nodegate policy list
  nodegate policy show flannel-vxlan
  nodegate policy show --effective --policy my.hcl`,
	}
	c.AddCommand(&cobra.Command{
		Use: "list", Short: "List the built-in policies", Example: "  nodegate policy list", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			for _, name := range policy.Builtins() {
				f, err := policy.Builtin(name)
				if err != nil {
					return err
				}
				fmt.Fprintf(c.OutOrStdout(), "%-20s %s\n", name, firstComment(string(f.Text)))
			}
			return nil
		},
	}, newPolicyShow())
	return c
}

// firstComment is what a built-in policy's first line says of it.
func firstComment(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return strings.TrimPrefix(line, "# ")
}

func newPolicyShow() *cobra.Command {
	var o options
	var effective bool
	c := &cobra.Command{
		Use:   "show [NAME]",
		Short: "Print a built-in policy, or with --effective all that is in force",
		Example: `  nodegate policy show kubernetes
  nodegate policy show --effective --policy my.hcl`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case effective && len(args) == 0:
				h, err := o.machine()
				if err != nil {
					return err
				}
				defer h.Close()
				p, _, err := o.load(h, c.ErrOrStderr())
				if err != nil {
					return err
				}
				return writeEffective(c.OutOrStdout(), p)
			case !effective && len(args) == 1:
				f, err := policy.Builtin(args[0])
				if err != nil {
					return err
				}
				_, err = c.OutOrStdout().Write(f.Text)
				return err
			}
			return fmt.Errorf("give the name of a built-in policy (%s), or --effective", strings.Join(policy.Builtins(), ", "))
		},
	}
	o.policyFlags(c)
	c.Flags().BoolVar(&effective, "effective", false, "print the merged policy, each line with its source")
	return c
}

// writeEffective lists every requirement as the checks will see it.
func writeEffective(w io.Writer, p *policy.Policy) error {
	type line struct{ name, want, source string }
	var lines []line
	add := func(name, want string, a policy.Metadata) {
		switch {
		case a.Off:
			want = "not on this node (when is false)"
		case a.Unknown != "":
			want = "depends on " + a.Unknown + ", not known here"
		}
		severity := ""
		if a.Severity == policy.Warn {
			severity = "  [warn]"
		}
		lines = append(lines, line{name, want + severity, a.Source()})
	}
	for _, m := range p.Modules {
		add("module."+m.Name, "loaded", m.Metadata)
	}
	for _, s := range p.Sysctls {
		add("sysctl."+s.Key.String(), s.Want(), s.Metadata)
	}
	for _, l := range p.Links {
		add("link."+l.Name, l.Want(), l.Metadata)
	}
	for _, j := range p.Problems {
		add(j.Name, "judged", j.Metadata)
	}
	for _, pr := range p.Probes {
		add("probe."+pr.Name, "reply translated within "+pr.Timeout.String(), pr.Metadata)
	}
	g := p.Gate
	add("gate", fmt.Sprintf("%s waits %s, looks every %s, then %s; repair %t", g.Unit, g.Budget, g.Interval, g.OnTimeout, g.Repair), policy.Metadata{Range: g.Range})
	name, want := 0, 0
	for _, l := range lines {
		name, want = max(name, len(l.name)), max(want, min(len(l.want), 60))
	}
	for _, l := range lines {
		if _, err := fmt.Fprintf(w, "%-*s  %-*s  %s\n", name, l.name, want, l.want, l.source); err != nil {
			return err
		}
	}
	return nil
}
