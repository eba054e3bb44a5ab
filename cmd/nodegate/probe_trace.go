package main

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	"nodegate/checks/datapath"
	"nodegate/internal/audit"
	"nodegate/internal/host"
	"nodegate/internal/ruleset"
	"nodegate/internal/verdict"
)

// traceService makes one connection, and prints the way of its packets beside the audit's own walk.
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
	t.NameRules(sets)
	t.Model = modelOf(ctx, h, sets, &t)
	got := verdict.Pass
	if t.Failed != "" {
		got = verdict.Fail
	}
	return o.writeProbe(c.OutOrStdout(), t, func(w io.Writer) error { return t.Render(w) }, got, "probe service --trace")
}

// modelOf returns how the audit's walk of the same connection ends, and whether the kernel contradicts it.
func modelOf(ctx context.Context, h *host.Host, sets []*ruleset.Set, t *datapath.ServiceTrace) string {
	var opts audit.Options
	audit.AddNetwork(ctx, h, &opts)
	rep := audit.Judge(sets, opts)
	from := t.From.Addr().String()
	for _, s := range rep.Services {
		if ip, err := netip.ParseAddr(s.ClusterIP); err != nil || ip != t.To.Addr() || s.Port != int(t.To.Port()) ||
			!strings.HasPrefix(string(t.Proto), "dns") == (s.Protocol == "udp") {
			continue
		}
		ways, err := audit.Traces(&rep, sets, &opts, s.Name, from)
		if err != nil || len(ways) == 0 {
			return ""
		}
		text := fmt.Sprintf("%s (`nodegate audit --service %s --from %s`)", ways[0].Verdict, s.Name, from)
		died := t.Request.Died() != nil || t.Reply.Died() != nil
		switch {
		case ways[0].Verdict == verdict.Pass && died:
			text += "; the kernel dropped the packet: the audit is wrong about this rule, please report it"
		case ways[0].Verdict == verdict.Fail && t.Failed == "":
			text += "; the connection succeeded: the audit is wrong, please report it"
		}
		return text
	}
	return ""
}
