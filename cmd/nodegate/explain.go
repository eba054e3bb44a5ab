package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"nodegate/checks/catalog"
	"nodegate/cmd/nodegate/internal/report"
	"nodegate/policy"
)

func newExplain() *cobra.Command {
	o := options{root: "/", noFacts: true}
	c := &cobra.Command{
		Use:   "explain [NAME]",
		Short: "Explain a check: symptom, detection, remedy, trade-off, source",
		Long: `Explain says what a check finds, how, and what to do. Part of a name is enough; if
several checks have it, they are listed. With --policy the requirements of that policy
are explained too, with their own symptom and tradeoff.`,
		Example: `  nodegate explain                                  list every check, by subject
  nodegate explain sysctl.net.ipv4.ip_forward
  nodegate explain vxlan
  nodegate explain --policy my.hcl link.overlay
  nodegate explain kubeproxy.dispatch.probability`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeChecks,
		RunE: func(c *cobra.Command, args []string) error {
			all, err := catalog.Explain()
			if err != nil {
				return err
			}
			if len(o.policies) > 0 {
				p, _, err := o.policyAlone(c)
				if err != nil {
					return err
				}
				all = catalog.ExplainWith(p, all)
			}
			if len(args) > 0 {
				if all, err = findExplanations(all, args[0]); err != nil {
					return err
				}
			}
			return report.Fold(c.OutOrStdout(), func(w io.Writer) error {
				if len(all) == 1 {
					return all[0].Write(w)
				}
				return listExplanations(w, all)
			})
		},
	}
	c.Flags().StringArrayVarP(&o.policies, "policy", "p", nil, "also explain what a policy asks for, `FILE or directory`")
	c.Flags().StringArrayVar(&o.vars, "var", nil, "set a variable of the policy, `NAME=VALUE`")
	c.Flags().StringArrayVar(&o.varFiles, "var-file", nil, "set variables from the NAME = VALUE lines of `FILE`")
	return c
}

// listExplanations writes one line for each check, below its subject: what its name
// begins with.
func listExplanations(w io.Writer, all []catalog.Explanation) error {
	var subjects []string
	of := map[string][]catalog.Explanation{}
	for _, e := range all {
		subject, _, several := strings.Cut(e.Name, ".")
		if !several {
			subject = "node"
		}
		if of[subject] == nil {
			subjects = append(subjects, subject)
		}
		of[subject] = append(of[subject], e)
	}
	for i, subject := range subjects {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "# %s\n", subject)
		for _, e := range of[subject] {
			if _, err := fmt.Fprintf(w, "%-52s %s\n", e.Name, e.Breaks); err != nil {
				return err
			}
		}
	}
	return nil
}

// findExplanations returns the check of that name, or all whose name has it in it.
func findExplanations(all []catalog.Explanation, name string) ([]catalog.Explanation, error) {
	plain := func(s string) string { return strings.ToLower(strings.NewReplacer("-", "_", "/", ".").Replace(s)) }
	var found []catalog.Explanation
	var names []string
	for _, e := range all {
		if e.Name == name {
			return []catalog.Explanation{e}, nil
		}
		if strings.Contains(plain(e.Name), plain(name)) {
			found = append(found, e)
		}
		names = append(names, e.Name)
		names = append(names, strings.Split(e.Name, ".")...)
	}
	if found == nil {
		return nil, fmt.Errorf("there is no check %q; `nodegate explain` lists them.%s", name, policy.Nearest(name, names))
	}
	return found, nil
}
