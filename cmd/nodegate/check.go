package main

import (
	"fmt"
	"path"
	"slices"

	"github.com/spf13/cobra"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/file"
	"nodegate/policy"
)

func newCheck() *cobra.Command {
	o := options{some: true}
	var snapshot string
	c := &cobra.Command{
		Use:   "check [NAME]...",
		Short: "Run the requirements and change nothing",
		Example: `  nodegate check
  nodegate check --policy my.hcl -o json
  nodegate check swap 'sysctl.net.*'        run only these
  nodegate check --root /mnt/image --stage image
  nodegate check --snapshot node17.json     find out what was wrong on node17`,
		Long: `Check runs the requirements of a policy. If you give names, it runs only those
requirements; a name may contain shell wildcards. If nothing was checked, the
verdict is unknown.`,
		ValidArgsFunction: completeChecks,
		RunE: func(c *cobra.Command, args []string) error {
			o.names = args
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
	c.Flags().StringVar(&snapshot, "snapshot", "", "check the snapshot in `FILE` instead of this machine")
	c.MarkFlagsMutuallyExclusive("snapshot", "root")
	return c
}

func replay(name string) (*host.Host, error) {
	s, err := readSnapshot(name)
	if err != nil {
		return nil, err
	}
	return host.Replay(s), nil
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

// selectChecks returns the named checks, or all checks if the call names none.
func (o *options) selectChecks(all []checks.Check, stage checks.Stage) ([]checks.Check, error) {
	if len(o.names) == 0 {
		return all, nil
	}
	known := make([]string, len(all))
	for i, c := range all {
		known[i] = c.Name()
	}
	wanted := map[string]bool{}
	for _, pattern := range o.names {
		found := false
		for _, name := range known {
			match, err := path.Match(pattern, name)
			if err != nil {
				return nil, fmt.Errorf("%q is not a valid pattern: close the bracket", pattern)
			}
			found = found || match
			wanted[name] = wanted[name] || match
		}
		if !found {
			return nil, fmt.Errorf("the policy has no requirement %q at stage %s; list them with `nodegate policy show --effective`.%s",
				pattern, stage, policy.Nearest(pattern, known))
		}
	}
	return slices.DeleteFunc(all, func(c checks.Check) bool { return !wanted[c.Name()] }), nil
}
