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
		Short: "Show the changes that apply would make",
		Example: `  nodegate plan
  nodegate plan --policy my.hcl`,
		Long: `Plan shows the changes that apply would make, with old and new values. It
changes nothing.

Exit status: 0 nothing to change, 1 changes to make, 2 usage or policy error,
3 unknown.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			h, err := o.machine()
			if err != nil {
				return err
			}
			defer h.Close()
			o.lint, o.advise = true, true
			_, r, err := o.examine(c, h, checks.Inspect)
			if err != nil {
				return err
			}
			plan := report.NewPlan(r)
			text := func(w io.Writer) error { return plan.Text(w, report.Painter(c.OutOrStdout()), repeatedCall(c.Flags())) }
			if err := report.Fold(c.OutOrStdout(), text); err != nil {
				return err
			}
			return exitCode(plan.Verdict())
		},
	}
	o.policyFlags(c)
	o.stageFlag(c)
	timeoutFlag(c.Flags(), &o.timeout, defaultTimeout, "stop after this long")
	return c
}
