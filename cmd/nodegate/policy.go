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

// policyDocument is the JSON document of policy show.
type policyDocument struct {
	APIVersion   string               `json:"apiVersion"`   // nodegate/v1
	Kind         string               `json:"kind"`         // Policy
	Files        []string             `json:"files"`        // paths, or builtin:NAME.hcl
	Requirements []policy.Requirement `json:"requirements"` // of the merged policy
}

func newPolicyDocument(p *policy.Policy) policyDocument {
	return policyDocument{report.APIVersion, "Policy", p.Files, p.Effective()}
}

func newPolicy() *cobra.Command {
	c := &cobra.Command{
		Use:   "policy",
		Short: "Show policies, or write one from sysctl.d and modules-load.d",
		Example: `  nodegate policy list
  nodegate policy show flannel-vxlan
  nodegate policy import /etc/sysctl.d /etc/modules-load.d -o my.hcl
  nodegate policy show --effective --policy my.hcl`,
	}
	c.AddCommand(newPolicyList(), newPolicyShow(), newPolicyDiff(), newPolicyImport())
	return c
}

// policyList is the JSON document of policy list.
type policyList struct {
	APIVersion string          `json:"apiVersion"` // nodegate/v1
	Kind       string          `json:"kind"`       // PolicyList
	Policies   []builtinPolicy `json:"policies"`   // by name
}

// builtinPolicy is a built-in policy in a policyList.
type builtinPolicy struct {
	Name        string `json:"name"`        // for use "NAME" {}
	Description string `json:"description"` // in one line
}

func newPolicyList() *cobra.Command {
	var o outputs
	c := &cobra.Command{
		Use: "list", Short: "List the built-in policies", Example: "  nodegate policy list\n  nodegate policy list -o json", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			list := policyList{report.APIVersion, "PolicyList", nil}
			for _, name := range policy.Builtins() {
				f, err := policy.Builtin(name)
				if err != nil {
					return err
				}
				list.Policies = append(list.Policies, builtinPolicy{name, firstComment(string(f.Text))})
			}
			return o.writeDocument(c.OutOrStdout(), list, func(w io.Writer) error {
				for _, p := range list.Policies {
					fmt.Fprintf(w, "%-20s %s\n", p.Name, p.Description)
				}
				return nil
			})
		},
	}
	o.formatFlags(c, "text", "json")
	return c
}

// firstComment returns the first line of a built-in policy, which describes it.
func firstComment(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return strings.TrimPrefix(line, "# ")
}

func newPolicyShow() *cobra.Command {
	var o struct {
		policyInput
		outputs
	}
	var effective bool
	c := &cobra.Command{
		Use:               "show [NAME]",
		ValidArgsFunction: cobra.FixedCompletions(policy.Builtins(), cobra.ShellCompDirectiveNoFileComp),
		Short:             "Print a built-in policy, or with --effective the policy in force",
		Example: `  nodegate policy show kubernetes
  nodegate policy show --effective --policy my.hcl
  nodegate policy show --effective --policy my.hcl --fact node.cpus=96`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case effective && len(args) == 0:
				p, _, err := o.policyAlone(c)
				if err != nil {
					return err
				}
				return o.writeDocument(c.OutOrStdout(), newPolicyDocument(p), p.WriteEffective)
			case !effective && len(args) == 1:
				f, err := policy.Builtin(args[0])
				if err != nil {
					return fmt.Errorf("%w; --effective --policy FILE prints your own", err)
				}
				if o.format == "json" {
					p, diags := policy.Load([]policy.File{f}, catalog.Known())
					if diags.HasErrors() {
						return diags
					}
					return o.writeDocument(c.OutOrStdout(), newPolicyDocument(p), nil)
				}
				if o.output == "" {
					_, err = exactWriter(c.OutOrStdout()).Write(f.Text)
					return err
				}
				return o.writeDocument(c.OutOrStdout(), nil, func(w io.Writer) error { _, err := w.Write(f.Text); return err })
			}
			return fmt.Errorf("name a built-in policy, or use --effective; built-in policies: %s", strings.Join(policy.Builtins(), ", "))
		},
	}
	o.policyFlags(c)
	o.factFlag(c)
	o.formatFlags(c, "text", "json")
	c.Flags().BoolVar(&effective, "effective", false, "print the merged policy, each line with its source")
	return c
}

// policyDiff is the JSON document of policy diff.
type policyDiff struct {
	APIVersion string          `json:"apiVersion"` // nodegate/v1
	Kind       string          `json:"kind"`       // PolicyDiff
	Changes    []policy.Change `json:"changes"`
}

func newPolicyDiff() *cobra.Command {
	var o struct {
		policyInput
		outputs
	}
	o.root, o.noFacts = "/", true
	c := &cobra.Command{
		Use:   "diff OLD NEW",
		Short: "Print what changes for a node between two policies",
		Long: `Diff compares the requirements of two policies, each a file or a directory. A
requirement that depends on a fact which is not given is compared as such; with
--fact both are evaluated for one node.

Exit status: 0 no requirement differs, 1 some differ, 2 a policy has mistakes.`,
		Example: `  nodegate policy diff old.hcl new.hcl
  nodegate policy diff old.hcl new.hcl --fact node.cpus=96`,
		Args: cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			var both []*policy.Policy
			for _, name := range args {
				o.policies = []string{name}
				p, _, err := o.policyAlone(c)
				if err != nil {
					return err
				}
				both = append(both, p)
			}
			changes := both[1].ChangesFrom(both[0])
			err := o.writeDocument(c.OutOrStdout(), policyDiff{report.APIVersion, "PolicyDiff", changes}, func(w io.Writer) error {
				for _, change := range changes {
					fmt.Fprintln(w, change)
				}
				return nil
			})
			if err == nil && len(changes) > 0 {
				err = exit(exitFail)
			}
			return err
		},
	}
	o.varFlags(c)
	o.factFlag(c)
	o.formatFlags(c, "text", "json")
	return c
}
