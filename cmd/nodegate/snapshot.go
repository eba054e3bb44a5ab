package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"nodegate/checks"
	"nodegate/host"
)

func newSnapshot() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:   "snapshot",
		Short: "Record what the checks read, to run them again elsewhere",
		Long: `Snapshot runs the checks and writes down everything that the machine answered:
files below /proc and /sys that the policy asks about, links and their features.
"nodegate check --snapshot FILE" runs the same policy on it, on any machine.`,
		Example: `  nodegate snapshot -o node17.json
  nodegate check --snapshot node17.json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			h, err := o.machine()
			if err != nil {
				return err
			}
			stage, err := o.stageFor(h)
			if err != nil {
				return err
			}
			recording, s := host.Record(h)
			p, _, err := o.load(recording, c.ErrOrStderr())
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(c.Context(), o.timeout)
			defer cancel()
			newDocument(recording, p, checks.Inspect(ctx, recording, stage, checks.For(p, stage)))
			return o.write(c.OutOrStdout(), func(w io.Writer) error { return encode(w, s) })
		},
	}
	o.policyFlags(c)
	c.Flags().StringVar(&o.stage, "stage", "", "image, boot, run or all (default boot, or image with --root)")
	c.Flags().StringVarP(&o.output, "output", "o", "", "write to `FILE` instead of standard output")
	c.Flags().DurationVar(&o.timeout, "timeout", defaultTimeout, "give up after this long")
	return c
}
