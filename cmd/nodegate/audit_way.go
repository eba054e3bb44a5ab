package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"nodegate/cmd/nodegate/internal/audit"
	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/host"
	"nodegate/internal/proxyrules"
	"nodegate/internal/verdict"
)

// writeWays writes the ways of packets from --from to --service, in recorded rules or on this node.
func (o *auditOptions) writeWays(ctx context.Context, h *host.Host, stdin io.Reader, stdout io.Writer) error {
	if o.service == "" {
		return errors.New("--from needs --service NAMESPACE/NAME[:PORT]")
	}
	if o.format != "text" && o.format != "json" && o.format != "svg" {
		return fmt.Errorf("--from cannot be written in format %q; known formats: text, json, svg", o.format)
	}
	opts := proxyrules.Options{}
	sets, err := o.parseRules(stdin)
	if err != nil {
		return err
	}
	if len(o.rules) == 0 {
		if sets, err = h.Rulesets(ctx); err != nil {
			return err
		}
		opts.Own = audit.OwnAddresses(ctx, h)
	}
	rep := proxyrules.Judge(sets, opts)
	one, err := report.OneService(&rep, o.service)
	if err != nil {
		return err
	}
	list, err := proxyrules.Traces(&rep, sets, &opts, o.service, o.from)
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return fmt.Errorf("no address of %s can be used from %s: it has no node port, external or load balancer address, or not this "+
			"address family (%d ports)", o.service, o.from, len(one.Services))
	}
	worst := verdict.Pass
	for _, t := range list {
		worst = verdict.Worse(worst, t.Verdict)
	}
	if err := o.write(stdout, func(w io.Writer) error { return report.WriteWays(w, o.format, list) }); err != nil {
		return err
	}
	return exitCode(worst)
}
