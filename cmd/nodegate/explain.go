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
	var o struct {
		policyInput
		outputs
	}
	o.root, o.noFacts = "/", true
	c := &cobra.Command{
		Use:   "explain [NAME]",
		Short: "Explain a check: symptom, detection, remedy, trade-off, source",
		Long: `Explain describes a check: the problem it finds, how it finds it, and the
remedy. Part of a name is enough. If several checks match, explain lists them.
With --policy it also explains the requirements of that policy, with the
symptom and tradeoff that the policy gives.`,
		Example: `  nodegate explain                              list every check, by subject
  nodegate explain sysctl.net.ipv4.ip_forward
  nodegate explain vxlan -o json
  nodegate explain --policy my.hcl link.overlay
  nodegate explain kubeproxy.chain.damaged`,
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
				if all, err = findExplanations(all, currentNames(c.ErrOrStderr(), args)[0]); err != nil {
					return err
				}
			}
			return o.writeDocument(c.OutOrStdout(), explanations{report.APIVersion, "Explanations", all}, func(w io.Writer) error {
				if len(all) == 1 {
					all[0].Remedy = repeated(c)(all[0].Remedy)
					return all[0].Write(w)
				}
				return listExplanations(w, all)
			})
		},
	}
	c.Flags().StringArrayVarP(&o.policies, "policy", "p", nil, "also explain the requirements of the policy in `FILE|DIR`")
	o.varFlags(c)
	o.formatFlags(c, "text", "json")
	return c
}

// explanations is the JSON document of explain.
type explanations struct {
	APIVersion string                `json:"apiVersion"` // nodegate/v1
	Kind       string                `json:"kind"`       // Explanations
	Checks     []catalog.Explanation `json:"checks"`     // in the order of the text
}

// listExplanations writes one line for each check, grouped by subject: the first part
// of its name.
func listExplanations(w io.Writer, all []catalog.Explanation) error {
	var subjects []string
	bySubject := map[string][]catalog.Explanation{}
	for _, e := range all {
		subject, _, several := strings.Cut(e.Name, ".")
		if !several {
			subject = "node"
		}
		if bySubject[subject] == nil {
			subjects = append(subjects, subject)
		}
		bySubject[subject] = append(bySubject[subject], e)
	}
	for i, subject := range subjects {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "# %s\n", subject)
		for _, e := range bySubject[subject] {
			if _, err := fmt.Fprintf(w, "%-52s %s\n", e.Name, e.Breaks); err != nil {
				return err
			}
		}
	}
	return nil
}

// findExplanations returns the check with this name, or else every check whose name contains it.
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
	if why, dropped := catalog.Dropped()[name]; dropped && found == nil {
		return nil, fmt.Errorf("nodegate does not check %s any more: %s", name, why)
	}
	if found == nil {
		return nil, fmt.Errorf("unknown check %q; list the checks with `nodegate explain`; --policy FILE explains a requirement of a policy.%s",
			name, policy.Nearest(name, names))
	}
	return found, nil
}
