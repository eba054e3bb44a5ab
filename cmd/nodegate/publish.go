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
		Short: "Check once and write the verdict as a Node condition",
		Long: `Publish runs the requirements of stage run and writes their verdict as a Node
condition. The policy's publish block names the condition. If the verdict has
changed, publish also creates an Event. It does not rewrite a condition that is
unchanged and less than four minutes old.

Watch publishes by itself. Use this command on nodes without watch:
publish { by = "timer" } installs a timer for it.

With --follow it inspects nothing. It publishes the verdicts that watch writes
to FILE, for the Node in $NODE_NAME, with the Pod's service account. The
DaemonSet of "nodegate export daemonset" uses it. With an empty --condition it
publishes nothing and waits until it is stopped.

Exit status: as check, once the condition is written; 3 if it was not written.`,
		Example: `  nodegate publish
  nodegate publish --policy my.hcl
  nodegate publish --follow /run/nodegate/watch.json --condition NodegatePassed`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if follow != "" {
				return followed(c, follow, condition)
			}
			if condition != "" {
				return errors.New("--condition requires --follow; without it the policy's publish block names the condition")
			}
			h, err := o.machine()
			if err != nil {
				return err
			}
			defer h.Close()
			if !h.Live() {
				return errors.New("publish works on the running machine, not on a file tree; leave out --root")
			}
			o.stage = string(checks.Run)
			p, found, err := o.examine(c, h, checks.Inspect)
			if err != nil {
				return err
			}
			if p.Publish.Condition == "" {
				return errors.New("the policy has no publish block; add `publish {}`")
			}
			off, err := h.BreakGlass(units.BreakGlassFile)
			if err != nil {
				fmt.Fprintln(c.ErrOrStderr(), "nodegate:", err)
			}
			return o.publish(c, h, watch.Status{Watching: report.Watching{BreakGlass: off}, Policy: p, Report: found})
		},
	}
	o.policyFlags(c)
	c.Flags().StringVar(&follow, "follow", "", "publish continuously the verdicts that watch writes to `FILE`")
	c.Flags().StringVar(&condition, "condition", "", "with --follow: the condition's `TYPE`")
	timeoutFlag(c.Flags(), &o.timeout, defaultTimeout, "stop after this long")
	c.MarkFlagsMutuallyExclusive("follow", "timeout") // --follow runs until it is stopped
	return c
}

// followed publishes the verdicts that watch writes on this machine, until the context ends.
func followed(c *cobra.Command, name, condition string) error {
	node := os.Getenv("NODE_NAME")
	switch {
	case condition == "":
		fmt.Fprintln(c.ErrOrStderr(), "nodegate: --condition is empty: publishing nothing") // keep running: Kubernetes restarts a Pod that exits
		<-c.Context().Done()
		return nil
	case node == "":
		return errors.New("NODE_NAME is not set; set it to the Pod's spec.nodeName through the downward API")
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
	return exitCode(s.Report.Verdict())
}
