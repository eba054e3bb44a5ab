package main

import (
	"io"

	"github.com/spf13/cobra"

	"nodegate/checks"
	"nodegate/cmd/nodegate/internal/report"
)

func newPlan() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:   "plan",
		Short: "Show what apply would change, old and new, and change nothing",
		Example: `  nodegate plan
  nodegate plan --policy my.hcl`,
		Long: `Plan shows what apply would change.

Exit status: 0 nothing to change, 1 something, 2 wrong call or policy, 3 unknown.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			h, err := o.machine()
			if err != nil {
				return err
			}
			defer h.Close()
			_, r, err := o.examine(c, h, checks.Inspect)
			if err != nil {
				return err
			}
			plan := report.NewPlan(r)
			text := func(w io.Writer) error { return plan.Text(w, report.Painter(c.OutOrStdout()), again(c.Flags())) }
			if err := report.Fold(c.OutOrStdout(), text); err != nil {
				return err
			}
			return code(plan.Verdict())
		},
	}
	o.policyFlags(c)
	o.stageFlag(c)
	timeoutFlag(c.Flags(), &o.timeout, defaultTimeout, "give up after this long")
	return c
}
