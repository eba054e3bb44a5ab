package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"nodegate/checks"
	"nodegate/cmd/nodegate/internal/report"
	"nodegate/cmd/nodegate/internal/watch"
	"nodegate/internal/host"
	"nodegate/internal/input"
	"nodegate/internal/kube"
	"nodegate/units"
)

func newPublish() *cobra.Command {
	var o options
	var follow, condition string
	c := &cobra.Command{
		Use: "publish", Hidden: true, // units and the DaemonSet call it
		Short: "Check once, and write the verdict as a condition of this node's Node",
		Long: `Publish runs the requirements of stage run, and writes their verdict as the condition
that the policy's publish block names, with an Event where it has changed. It is for
those who run no watch, which publishes by itself: publish { by = "timer" } installs a
timer for it. What the Node has had for less than four minutes is not written again.

With --follow it inspects nothing: it goes on publishing what watch writes into a file, as
the service account of its Pod, for the Node in $NODE_NAME. The DaemonSet of "nodegate
export daemonset" does that; without --condition it only waits, until it is stopped.

Exit status: that of check, once the condition is written; 3 where it could not be.`,
		Example: `  nodegate publish
  nodegate publish --policy my.hcl
  nodegate publish --follow /run/nodegate/watch.json --condition NodegatePassed`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if follow != "" {
				return followed(c, follow, condition)
			}
			if condition != "" {
				return errors.New("--condition is for --follow; the policy's publish block names it otherwise")
			}
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
			off, err := h.BreakGlass(units.BreakGlassFile)
			if err != nil {
				fmt.Fprintln(c.ErrOrStderr(), "nodegate:", err)
			}
			return o.publish(c, h, watch.Status{Watching: report.Watching{BreakGlass: off}, Policy: p, Report: found})
		},
	}
	o.policyFlags(c)
	c.Flags().StringVar(&follow, "follow", "", "go on publishing what watch writes into `FILE`")
	c.Flags().StringVar(&condition, "condition", "", "with --follow: the condition's `TYPE`")
	timeoutFlag(c.Flags(), &o.timeout, defaultTimeout, "give up after this long")
	c.MarkFlagsMutuallyExclusive("follow", "timeout") // it goes on until it is stopped
	return c
}

// followed publishes what a watch on this machine writes, until the context ends.
func followed(c *cobra.Command, name, condition string) error {
	node := os.Getenv("NODE_NAME")
	switch {
	case condition == "":
		fmt.Fprintln(c.ErrOrStderr(), "nodegate: --condition is empty: nothing is published") // a Pod that ends is started again
		<-c.Context().Done()
		return nil
	case node == "":
		return errors.New("NODE_NAME is not set: give it the Pod's spec.nodeName by the downward API")
	}
	cluster := kube.NewPublisher(host.Credential, func(line string) { host.Print(c.ErrOrStderr(), "nodegate: "+report.OneLine(line)) })
	go cluster.Run(c.Context())
	watch.Follow(c.Context(), name, condition, node, 2*time.Second, cluster.Set)
	return nil
}

func (o *options) publish(c *cobra.Command, h *host.Host, s watch.Status) error {
	ctx, cancel := context.WithTimeout(c.Context(), o.timeout)
	defer cancel()
	want := s.Publication(h)
	err := kube.Publish(ctx, host.Credential, want, func(line string) { fmt.Fprintln(c.ErrOrStderr(), "nodegate: "+line) })
	if err != nil {
		return inputError(fmt.Errorf("%w: publishing the condition %s: %w", input.ErrUnknown, want.Type, err))
	}
	fmt.Fprintf(c.OutOrStdout(), "%s is %s (%s): %s\n", want.Type, want.Status, want.Reason, want.Message)
	return code(s.Report.Verdict())
}
