package main

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/file"
)

func newCheck() *cobra.Command {
	o := checkRun{some: true, asIs: true}
	var snapshot string
	c := &cobra.Command{
		Use:   "check [POLICY] [NAME]...",
		Short: "Run the requirements and change nothing",
		Example: `  nodegate check
  nodegate check my.hcl -o json
  nodegate check swap 'sysctl.net.*'        run only these
  nodegate check --root /mnt/image --stage image
  nodegate check --snapshot node17.json     find out what was wrong on node17`,
		Long: `Check runs the requirements of a policy. If you give names, it runs only those
requirements; a name may contain shell wildcards. If nothing was checked, the
verdict is unknown.

Without --stage, check uses stage run if kubelet's unit is active, otherwise
boot; a name may then be from either stage. A snapshot is checked at the stage
at which it was recorded. The last line counts the checks that were left out.`,
		ValidArgsFunction: completeChecks,
		RunE: func(c *cobra.Command, args []string) (err error) {
			if o.names, err = takePolicies(c, args); err != nil {
				return err
			}
			h, err := o.machine()
			if snapshot != "" {
				h, o.recorded, err = replay(snapshot)
			}
			if err != nil {
				return err
			}
			defer h.Close()
			return o.report(c, host.Once(h), checks.Inspect)
		},
	}
	o.policyFlags(c)
	o.reportFlags(c)
	o.skipFlag(c)
	c.Flags().StringVar(&snapshot, "snapshot", "", "check the snapshot in `FILE` instead of this machine")
	c.MarkFlagsMutuallyExclusive("snapshot", "root")
	return c
}

// replay returns the host of a snapshot, and the stage at which it was recorded.
func replay(name string) (*host.Host, checks.Stage, error) {
	s, err := readSnapshot(name)
	if err != nil {
		return nil, "", err
	}
	return host.Replay(s), cmp.Or(checks.Stage(s.Stage), checks.Boot), nil
}

func readSnapshot(name string) (*host.Snapshot, error) {
	f, err := file.OpenInput(name)
	if err != nil {
		return nil, fmt.Errorf("reading snapshot: %w", err)
	}
	defer f.Close()
	s, err := host.ReadSnapshot(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return s, nil
}
