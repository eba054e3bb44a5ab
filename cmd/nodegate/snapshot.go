package main

import (
	"errors"
	"io"

	"github.com/spf13/cobra"

	"nodegate/checks"
	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/host"
	"nodegate/policy"
)

func newSnapshot() *cobra.Command {
	o := checkRun{asIs: true, both: true}
	var show, whole bool
	c := &cobra.Command{
		Use:   "snapshot [FILE]",
		Short: "Record a node, to run the checks on another machine",
		Long: `Snapshot runs the checks and records the answers that they got: parameters,
links with their features, and rules. Of configuration files and command lines
it holds no text, but the results of the checks that read them. --show prints
what a snapshot holds, by source and size: of FILE, or of what would be
recorded.

"nodegate check --snapshot FILE" runs the checks on the recording, on any
machine. It uses the installed policy, which is recorded too. If you give
--policy or --var here, give them there as well. Without --stage, a snapshot of
a running machine holds the answers for stages boot and run.

--whole also records every parameter, the attributes of /sys that a policy may
set, and all links and modules. "nodegate preview" then tests blocks sysctl,
sysfs, link and module that the node's policy does not have yet. Of a value that
only root may read, the snapshot holds numbers only, and no key.`,
		Example: `  nodegate snapshot -o node17.json
  nodegate check --snapshot node17.json
  nodegate snapshot --show node17.json
  nodegate snapshot --policy new.hcl -o node17.json
  nodegate check --policy new.hcl --snapshot node17.json
  nodegate snapshot --whole -o node17.json
  nodegate preview --policy new.hcl node17.json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 1 {
				return o.showSnapshot(c, args[0], show)
			}
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
			s.Stage = string(r.Stage)
			report.New(recording, p, r) // also record the data that a report reads from the node
			if whole {
				recording.RecordWhole(c.Context(), policy.WritableAttributes(), policy.FactNames())
			}
			o.private = true
			if show {
				return o.write(c.OutOrStdout(), s.Contents)
			}
			return o.write(c.OutOrStdout(), func(w io.Writer) error { return report.JSON(w, s) })
		},
	}
	o.policyFlags(c)
	o.stageFlag(c)
	c.Flags().StringVarP(&o.output, "output", "o", "", "write to `FILE` instead of standard output")
	c.Flags().BoolVar(&show, "show", false, "print what the snapshot holds, by source and size, instead of the snapshot")
	c.Flags().BoolVar(&whole, "whole", false, "also record all of /proc/sys, the attributes of /sys that a policy may set, links and modules")
	timeoutFlag(c.Flags(), &o.timeout, defaultTimeout, "stop after this long")
	return c
}

func (o *outputs) showSnapshot(c *cobra.Command, name string, show bool) error {
	if !show {
		return errors.New("a FILE is only read with --show; to write to it, use -o " + name)
	}
	s, err := readSnapshot(name)
	if err != nil {
		return err
	}
	return o.write(c.OutOrStdout(), s.Contents)
}
