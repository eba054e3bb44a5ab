package main

import (
	"io"

	"github.com/spf13/cobra"

	"nodegate/checks"
	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/host"
)

func newSnapshot() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:   "snapshot",
		Short: "Record what the checks read, to run them again elsewhere",
		Long: `Snapshot runs the checks and records everything that they read: files below /proc
and /sys that the policy names, links and their features. Private keys and what a
kubeconfig lets somebody in with are left out. "nodegate check --snapshot FILE" runs
the installed policy, which is recorded too, on the recording, on any machine.
A --policy, --var or --stage that is given here must be given there.`,
		Example: `  nodegate snapshot -o node17.json
  nodegate check --snapshot node17.json
  nodegate snapshot --policy new.hcl -o node17.json
  nodegate check --policy new.hcl --snapshot node17.json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			h, err := o.machine()
			if err != nil {
				return err
			}
			defer h.Close()
			recording, s := host.Record(h)
			p, r, err := o.examine(c, recording, checks.Inspect)
			if err != nil {
				return err
			}
			report.New(recording, p, r) // records what a report reads of the node, too
			o.private = true
			return o.write(c.OutOrStdout(), func(w io.Writer) error { return report.JSON(w, s) })
		},
	}
	o.policyFlags(c)
	o.stageFlag(c)
	c.Flags().StringVarP(&o.output, "output", "o", "", "write to `FILE` instead of standard output")
	timeoutFlag(c.Flags(), &o.timeout, defaultTimeout, "give up after this long")
	return c
}
