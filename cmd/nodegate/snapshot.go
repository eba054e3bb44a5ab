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
		Short: "Record a node, to run the checks on another machine",
		Long: `Snapshot runs the checks and records everything that they read: the files below
/proc and /sys that the policy names, and links with their features. It leaves
out private keys and the credentials in a kubeconfig.

"nodegate check --snapshot FILE" runs the checks on the recording, on any
machine. It uses the installed policy, which is recorded too. If you give
--policy, --var or --stage here, give them there as well.`,
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
			report.New(recording, p, r) // also record the data that a report reads from the node
			o.private = true
			return o.write(c.OutOrStdout(), func(w io.Writer) error { return report.JSON(w, s) })
		},
	}
	o.policyFlags(c)
	o.stageFlag(c)
	c.Flags().StringVarP(&o.output, "output", "o", "", "write to `FILE` instead of standard output")
	timeoutFlag(c.Flags(), &o.timeout, defaultTimeout, "stop after this long")
	return c
}
