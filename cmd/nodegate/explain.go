package main

import (
	"fmt"
	"io"
	"slices"
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
remedy. Part of a name is enough. If several checks match, explain lists them;
without a name, it counts the checks of each subject. With --policy it also
explains the requirements of that policy, with its symptom and tradeoff.`,
		Example: `  nodegate explain                              list the subjects
  nodegate explain kubelet                      list the checks of one
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
				if len(args) == 0 {
					return listSubjects(w, all)
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

// subject returns the first part of a check's name.
func subject(e catalog.Explanation) string {
	subject, _, several := strings.Cut(e.Name, ".")
	if !several {
		return "node"
	}
	return subject
}

// listSubjects writes one line for each subject, with the number of its checks and the first names.
func listSubjects(w io.Writer, all []catalog.Explanation) error {
	var subjects []string
	names := map[string][]string{}
	for _, e := range all {
		s := subject(e)
		if names[s] == nil {
			subjects = append(subjects, s)
		}
		names[s] = append(names[s], strings.TrimPrefix(e.Name, s+"."))
	}
	slices.Sort(subjects)
	for _, s := range subjects {
		n := names[s]
		more := ""
		if len(n) > 3 {
			n, more = n[:3], ", ..."
		}
		fmt.Fprintf(w, "%-20s %3d  %s%s\n", s, len(names[s]), strings.Join(n, ", "), more)
	}
	_, err := fmt.Fprintf(w, "next    `nodegate explain SUBJECT` lists the checks of one; `nodegate explain NAME` describes a check\n")
	return err
}

// listExplanations writes one line for each check.
func listExplanations(w io.Writer, all []catalog.Explanation) error {
	for _, e := range all {
		if _, err := fmt.Fprintf(w, "%-52s %s\n", e.Name, e.Breaks); err != nil {
			return err
		}
	}
	return nil
}

// findExplanations returns the check with this name, the checks of this subject if it has several, or else
// every check whose name contains it.
func findExplanations(all []catalog.Explanation, name string) ([]catalog.Explanation, error) {
	plain := func(s string) string { return strings.ToLower(strings.NewReplacer("-", "_", "/", ".").Replace(s)) }
	var found []catalog.Explanation
	var names []string
	if i := slices.IndexFunc(all, func(e catalog.Explanation) bool { return e.Name == name }); i >= 0 {
		return all[i : i+1], nil
	}
	for _, e := range all {
		if subject(e) == name {
			found = append(found, e)
		}
	}
	if len(found) > 1 {
		return found, nil
	}
	found = nil
	for _, e := range all {
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
