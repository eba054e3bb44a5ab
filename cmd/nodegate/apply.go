package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"nodegate/checks"
	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/host"
	"nodegate/internal/host/confine"
)

func newApply() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:   "apply",
		Short: "Check, fix what fails, check again",
		Long: `Apply fixes the requirements that it can: it loads modules, writes sysctls and
sets link features, then reads everything back. It does not write what passes
already. What only kubelet's start needs (its runtime and configuration) is left
to the gate and to check. Every change is kept in ` + report.ChangesFile + `, old value and new.`,
		Example: `  nodegate plan && nodegate apply
  nodegate apply --policy my.hcl`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			o.guarded = len(o.policies) == 0 // whoever names a policy has looked at it; nobody looks at what runs at boot
			h, err := o.machine()
			if err != nil {
				return err
			}
			defer h.Close()
			if err := needRoot("apply", ", or see what it would do: nodegate plan"); err != nil && h.Live() {
				return err
			}
			if !h.Live() {
				return errors.New("apply works on the running machine; for a file tree use: nodegate install --root DIR")
			}
			// systemd gives a folder to nodegate-apply.service: it writes nowhere else.
			if own := os.Getenv("RUNTIME_DIRECTORY"); own != "" {
				if err := confine.Writes("/dev", "/proc", "/sys/devices", "/sys/kernel", "/sys/module", own); err != nil {
					fmt.Fprintln(c.ErrOrStderr(), "nodegate:", err) // a node without this is better than none
				}
			}
			return o.report(c, h, applyAndRecord)
		},
	}
	o.policyFlags(c)
	o.guardFlag(c)
	o.reportFlags(c)
	return c
}

func applyAndRecord(ctx context.Context, h *host.Host, stage checks.Stage, list []checks.Check) checks.Outcome {
	keep := func(was checks.Result, made []checks.Change) { report.RecordChange(report.Made(was, made)) }
	r := checks.Apply(ctx, h, stage, checks.Early(list), keep)
	report.RecordFixed(r)
	report.LogFixed(r, func(line string, fields map[string]string) { host.Log(host.LevelNotice, line, fields) })
	return r
}
