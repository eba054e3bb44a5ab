package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"nodegate/checks"
	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/host"
	"nodegate/internal/verdict"
)

func newPlan() *cobra.Command {
	var o checkRun
	c := &cobra.Command{
		Use:   "plan [POLICY]",
		Short: "Show the changes that apply would make",
		Example: `  nodegate plan
  nodegate plan my.hcl
  nodegate plan && nodegate apply`,
		Long: `Plan shows the changes that apply would make, with old and new values. It
changes nothing.

Exit status: 0 the plan is complete, 2 usage or policy error, 3 unknown. The
exit status of "nodegate check" says whether the node differs.`,
		Args: policyArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			h, err := o.machine()
			if err != nil {
				return err
			}
			defer h.Close()
			o.lint, o.advise = true, true
			v, err := o.plan(c, h)
			if err == nil && v == verdict.Unknown {
				return exit(exitUnknown)
			}
			return err
		},
	}
	o.policyFlags(c)
	o.stageFlag(c)
	o.formatFlags(c, "text", "json")
	o.quietFlag(c)
	timeoutFlag(c.Flags(), &o.timeout, defaultTimeout, "stop after this long")
	return c
}

// plan inspects h and writes the changes that apply would make.
func (o *checkRun) plan(c *cobra.Command, h *host.Host) (verdict.Verdict, error) {
	// It runs no program of the policy: plan shows changes, and a program makes none that it could show.
	p, found, err := o.examine(c, h, func(ctx context.Context, h *host.Host, stage checks.Stage, list []checks.Check) checks.Outcome {
		return checks.Inspect(ctx, h, stage, checks.WithoutPrograms(list))
	})
	if err != nil {
		return verdict.Unknown, err
	}
	plan := report.NewPlan(found)
	call := repeated(c)
	render := func(w io.Writer) error { return plan.Text(w, o.paint(c.OutOrStdout()), call) }
	if o.format == "json" {
		render = func(w io.Writer) error { return report.JSON(w, plan.Document(report.New(h, p, found), call)) }
	}
	return plan.Verdict(), o.write(c.OutOrStdout(), render)
}
