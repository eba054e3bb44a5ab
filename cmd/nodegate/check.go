package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/file"
)

func newCheck() *cobra.Command {
	var o options
	var snapshot string
	c := &cobra.Command{
		Use:   "check",
		Short: "Run the requirements and change nothing",
		Example: `  nodegate check
  nodegate check --policy my.hcl --format json
  nodegate check --root /mnt/image --stage image
  nodegate check --snapshot node17.json      what was wrong on that node?`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			h, err := o.machine()
			if snapshot != "" {
				h, err = replay(snapshot)
			}
			if err != nil {
				return err
			}
			defer h.Close()
			return o.report(c, h, checks.Inspect)
		},
	}
	o.policyFlags(c)
	o.reportFlags(c)
	c.Flags().StringVar(&snapshot, "snapshot", "", "check the machine that `FILE` is a snapshot of")
	c.MarkFlagsMutuallyExclusive("snapshot", "root")
	return c
}

func replay(name string) (*host.Host, error) {
	f, err := file.OpenInput(name)
	if err != nil {
		return nil, fmt.Errorf("reading snapshot: %w", err)
	}
	defer f.Close()
	s, err := host.ReadSnapshot(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return host.Replay(s), nil
}
