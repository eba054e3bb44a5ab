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
	"nodegate/internal/verdict"
)

func newApply() *cobra.Command {
	var o checkRun
	var dryRun bool
	c := &cobra.Command{
		Use:   "apply [POLICY]",
		Short: "Check, fix what fails, check again",
		Long: `Apply fixes the requirements that it can: it loads modules, writes sysctls and
sets link features, then reads everything back. It does not write settings that
already pass. Requirements that only kubelet's start needs (its runtime and
configuration) are left to the gate and to check. Apply records every change,
with the old and the new value, in ` + report.ChangesFile + `.`,
		Example: `  nodegate plan && nodegate apply
  nodegate apply --dry-run
  nodegate apply my.hcl`,
		Args: policyArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if o.stage == string(checks.Image) {
				return errors.New("apply changes a running machine: leave out --stage image; `nodegate install --root DIR` prepares an image")
			}
			o.acts = !dryRun
			o.copied = true // a policy named in the call may belong to the caller
			h, err := o.machine()
			if err != nil {
				return err
			}
			defer h.Close()
			if !h.Live() {
				return errors.New("apply works on the running machine; for a file tree run `nodegate install --root DIR`")
			}
			if dryRun {
				v, err := o.plan(c, h)
				if err == nil && v == verdict.Unknown {
					return exit(exitUnknown)
				}
				return err
			}
			if err := needRoot("apply", ", or preview its changes with `nodegate plan`"); err != nil {
				return err
			}
			// systemd sets this for nodegate-apply.service, which writes to no other directory.
			if own := os.Getenv("RUNTIME_DIRECTORY"); own != "" {
				if err := confine.Writes("/dev", "/proc", "/sys/devices", "/sys/kernel", "/sys/module", own); err != nil {
					fmt.Fprintln(c.ErrOrStderr(), "nodegate:", err) // a node without confinement is better than no node
				}
			}
			return o.report(c, h, applyAndRecord)
		},
	}
	o.policyFlags(c)
	_ = c.Flags().MarkHidden("root") // it is refused with what to do instead
	o.guardFlag(c)
	o.reportFlags(c)
	c.Flags().BoolVar(&dryRun, "dry-run", false, "show the changes, as plan does, and make none")
	return c
}

func applyAndRecord(ctx context.Context, h *host.Host, stage checks.Stage, list []checks.Check) checks.Outcome {
	record := func(was checks.Result, made []checks.Change) { report.RecordChange(report.Made(was, made)) }
	r := checks.Apply(ctx, h, stage, checks.Early(list), record)
	r.Results = append(r.Results, checks.ProgramsLeftOut(list, len(r.Results) == 0)...)
	report.RecordFixed(r)
	report.LogFixed(r, func(line string, fields map[string]string) { host.Log(host.LevelNotice, line, fields) })
	for _, res := range r.Results {
		if res.Name == "kubelet.unit" && res.Differs() && os.Getenv("RUNTIME_DIRECTORY") != "" {
			host.Console("nodegate: " + report.NewMessage(res).Text) // systemd may refuse the unit before its gate, which would print it
		}
	}
	return r
}
