package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"nodegate/checks/datapath"
	"nodegate/internal/host"
	"nodegate/internal/verdict"
)

// traceService makes one connection, and prints the way of its packets.
func (o *auditOptions) traceService(ctx context.Context, c *cobra.Command, addr string, service datapath.ServiceOptions) error {
	h, err := host.Open("/")
	if err != nil {
		return err
	}
	defer h.Close()
	t, err := datapath.TraceService(ctx, addr, service)
	if err := interrupted(c, ": no verdict"); err != nil {
		return err
	}
	if err := refusedCall(err); err != nil {
		return err
	}
	if err != nil {
		return unknown(c, err)
	}
	sets, err := h.Rulesets(ctx)
	if err != nil {
		fmt.Fprintf(c.ErrOrStderr(), "nodegate: printing handles in place of rules: %v\n", err)
	}
	t.NameRules(ctx, sets)
	got := verdict.Pass
	if t.Failed != "" {
		got = verdict.Fail
	}
	return o.writeProbe(c.OutOrStdout(), t, func(w io.Writer) error { return t.Render(w) }, got, "probe service --trace")
}
