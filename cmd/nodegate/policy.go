package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"nodegate/policy"
)

func newPolicy() *cobra.Command {
	c := &cobra.Command{
		Use:   "policy",
		Short: "Show the built-in policies or the policy in force",
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

// firstComment returns the first line of a built-in policy, which describes it.
func firstComment(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return strings.TrimPrefix(line, "# ")
}

func newPolicyShow() *cobra.Command {
	var o options
	var effective bool
	c := &cobra.Command{
		Use:               "show [NAME]",
		ValidArgsFunction: cobra.FixedCompletions(policy.Builtins(), cobra.ShellCompDirectiveNoFileComp),
		Short:             "Print a built-in policy, or with --effective the policy in force",
		Example: `  nodegate policy show kubernetes
  nodegate policy show --effective --policy my.hcl`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case effective && len(args) == 0:
				p, _, err := o.policyAlone(c)
				if err != nil {
					return err
				}
				return p.WriteEffective(c.OutOrStdout())
			case !effective && len(args) == 1:
				f, err := policy.Builtin(args[0])
				if err != nil {
					return err
				}
				_, err = exactWriter(c.OutOrStdout()).Write(f.Text)
				return err
			}
			return fmt.Errorf("name a built-in policy, or use --effective; built-in policies: %s", strings.Join(policy.Builtins(), ", "))
		},
	}
	o.policyFlags(c)
	c.Flags().BoolVar(&effective, "effective", false, "print the merged policy, each line with its source")
	return c
}
