package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/input"
	"nodegate/internal/kube"
	"nodegate/internal/report"
	"nodegate/internal/watch"
)

func newPublish() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:   "publish",
		Short: "Check once, and write the verdict as a condition of this node's Node",
		Long: `Publish runs the requirements of stage run, and writes their verdict as the condition
that the policy's publish block names, with an Event where it has changed. It is for
those who run no watch, which publishes by itself: publish { by = "timer" } installs a
timer for it. What the Node has had for less than four minutes is not written again.

Exit status: that of check, once the condition is written; 3 where it could not be.`,
		Example: `  nodegate publish
  nodegate publish --policy my.hcl`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			h, err := o.machine()
			if err != nil {
				return err
			}
			defer h.Close()
			if !h.Live() {
				return errors.New("publish is about the running machine, not about a file tree")
			}
			o.stage = string(checks.Run)
			p, found, err := o.examine(c, h, checks.Inspect)
			if err != nil {
				return err
			}
			if p.Publish.Condition == "" {
				return errors.New("the policy has no publish block; write: publish {}")
			}
			return o.publish(c, h, watch.State{Policy: p, Report: found})
		},
	}
	o.policyFlags(c)
	timeoutFlag(c.Flags(), &o.timeout, defaultTimeout, "give up after this long")
	return c
}

func (o *options) publish(c *cobra.Command, h *host.Host, s watch.State) error {
	ctx, cancel := context.WithTimeout(c.Context(), o.timeout)
	defer cancel()
	want := s.Publication(h)
	err := kube.Publish(ctx, host.Credential, want, func(line string) { fmt.Fprintln(c.ErrOrStderr(), "nodegate: "+line) })
	if err != nil {
		return inputError(fmt.Errorf("%w: publishing the condition %s: %w", input.ErrUnknown, want.Type, err))
	}
	fmt.Fprintf(c.OutOrStdout(), "%s is %s (%s): %s\n", want.Type, want.Status, want.Reason, want.Message)
	return code(report.Verdict(s.Report.Verdict().String()))
}
