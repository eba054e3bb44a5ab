// Package audit compares this node's rules with the API server: once for `nodegate audit`, continuously for `nodegate watch`.
package audit

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	"nodegate/internal/audit/kubeproxy"
	"nodegate/internal/audit/proxy"
	"nodegate/internal/audit/settle"
	"nodegate/internal/host"
	"nodegate/internal/ruleset"
)

// Machine is the node that is audited.
type Machine struct {
	Host     *host.Host
	Presence kubeproxy.Presence

	generation func(context.Context) (generation string, sure bool, err error)
	spent      func() time.Duration                        // processor time since the start
	skipped    func(error)                                 // called with the reason why a page was not read; nil: a note
	flows      func(context.Context) ([]proxy.Flow, error) // reads conntrack
	unanswered error                                       // why the API was not listed; nil if it was, and in Follow
	node       string                                      // its name in the API, or ""
	follows    bool                                        // audited by Follow
	failures   float64                                     // of writing rules, at the last round of Follow; -1: not known
	asked      kubeproxy.Answers                           // kube-proxy's last report about itself

	// State of kube-proxy at the last reading.
	live     proxy.Live
	mode     string
	families int
	silent   time.Time // when it last failed to report its syncs
}

// NewMachine returns the node of h.
func NewMachine(h *host.Host) *Machine {
	return &Machine{Host: h, Presence: kubeproxy.Presence{Host: h, Clock: host.ClockOffset}, flows: kubeproxy.Flows,
		generation: h.RulesGeneration, spent: h.ProcessorTime, failures: -1}
}

// Rules reads and judges the rules. It reads nf_conntrack_tcp_be_liberal after them each time, because kube-proxy may be configured to
// set it at its start (conntrack.tcpBeLiberal), before it writes rules.
func (n *Machine) Rules(ctx context.Context) (proxy.Judgment, error) {
	sets, err := n.Host.Rulesets(ctx)
	if err != nil {
		return proxy.Judgment{}, err
	}
	settings, err := n.Presence.Settings()
	if err != nil {
		return proxy.Judgment{}, err
	}
	n.live = proxy.Live{
		NoExternalIPs: settings.NoExternalIPs,
		Wrote: func(family string) (wrote, known bool) {
			figures, _ := n.Presence.Figures(ctx)
			return figures.Wrote(family)
		},
	}
	opts := proxy.Options{
		BeLiberal: readBeLiberal(n.Host), NodePortAddresses: &settings.NodePortAddresses, ExcludeCIDRs: settings.ExcludeCIDRs, Live: n.live,
	}
	rep := proxy.Judge(sets, opts)
	n.mode, n.families = rep.Mode, len(rep.Families)
	n.explainMissing(ctx, &rep)
	return rep, nil
}

// Live returns queries to kube-proxy. One reading of the rules asks each at most once.
func (n *Machine) Live() proxy.Live { return n.live }

// explainMissing distinguishes rules that another program has deleted from rules that kube-proxy has not written since its start, as its
// metrics show, and a node without kube-proxy from one on which another program has deleted all of its rules.
func (n *Machine) explainMissing(ctx context.Context, rep *proxy.Judgment) {
	figures := sync.OnceValue(func() kubeproxy.Metrics {
		m, _ := n.Presence.Figures(ctx)
		return m
	})
	for i, f := range rep.Findings {
		switch f.Name {
		case "kubeproxy.table.flushed":
			if of, known := figures().Of(f.Family); known && of.LastSync.IsZero() {
				rep.Findings[i] = proxy.NewFinding(proxy.Finding{Name: "kubeproxy.table.unwritten", Family: f.Family, Table: f.Table, Line: f.Line,
					Message: fmt.Sprintf("table %s has no kube-proxy rules; its metrics show that it has written none since it started", f.Table)})
			}
		case "kubeproxy.rules.absent":
			if wrote := n.Presence.LastSync(ctx); !wrote.IsZero() {
				rep.Findings[i] = proxy.NewFinding(proxy.Finding{Name: "kubeproxy.rules.deleted",
					Message: fmt.Sprintf("kube-proxy runs, and its metrics show that it last wrote its rules at %s, but no backend has "+
						"any of them: another program deleted all of them", wrote.UTC().Format(time.RFC3339))})
			}
		}
	}
}

// Proxy checks whether kube-proxy runs and answers.
func (n *Machine) Proxy(ctx context.Context) []proxy.Finding {
	return n.excuse(ctx, n.Presence.Look(ctx))
}

// excuse makes findings unknown that depend on the audit's own query if a rule may drop its packets.
func (n *Machine) excuse(ctx context.Context, found []proxy.Finding) []proxy.Finding {
	for i := range found {
		f := &found[i]
		page, err := netip.ParseAddrPort(n.Presence.Page())
		if !strings.HasPrefix(f.Name, "kubeproxy.process.") || f.Name == "kubeproxy.process.stopped" || err != nil {
			continue
		}
		if does, remedy, lost := n.losesPage(ctx, page, f.Name == "kubeproxy.process.hung"); lost {
			*f = proxy.NewFinding(proxy.Finding{Name: "kubeproxy.process.silent", Remedy: remedy,
				Message: f.Message + "; it may not have received this query: " + does})
		}
	}
	return found
}

// Trouble looks at kube-proxy cheaply.
func (n *Machine) Trouble(ctx context.Context) []proxy.Finding {
	return n.Presence.Trouble(ctx)
}

// Writer returns the process with which kube-proxy is writing rules.
func (n *Machine) Writer() settle.Writer {
	p, runs, found := n.Presence.Writer()
	if !found {
		return settle.Writer{}
	}
	return settle.Writer{PID: p.PID, Runs: runs, Used: p.Used}
}

// Written queries kube-proxy's metrics, unless they have just failed. In IPVS mode, one sync is hundreds of short programs and takes long
// on a slow node. In the other modes, a failed sync is retried only after syncPeriod, 30 s.
func (n *Machine) Written() map[string]settle.Written {
	programs := n.mode == "ipvs"
	if !programs && time.Since(n.silent) < time.Minute {
		return nil
	}
	all := map[string]settle.Written{}
	figures, slow := n.Presence.Figures(context.Background())
	switch {
	case slow && programs: // any number of changes may be waiting
		now := settle.Written{Queued: time.Now()}
		return map[string]settle.Written{ruleset.IPv4: now, ruleset.IPv6: now}
	case slow:
		n.silent = time.Now()
		return nil
	}
	for family, f := range figures.Families {
		w := settle.Written{At: f.LastSync, Queued: f.LastQueued, Shared: family == "" && n.families > 1, Whole: !programs}
		if family != "IPv6" {
			all[ruleset.IPv4] = w
		}
		if family != "IPv4" {
			all[ruleset.IPv6] = w
		}
	}
	return all
}

// Generation returns the generation of the rules.
func (n *Machine) Generation(ctx context.Context) (generation string, sure bool, err error) {
	return n.generation(ctx)
}

// Spent returns the processor time of this process.
func (n *Machine) Spent() time.Duration { return n.spent() }

// Flows returns the stale flows of conntrack. If they cannot be read, it returns a finding about that.
func (n *Machine) Flows(ctx context.Context, api settle.API, now *proxy.Versions, d time.Duration) []proxy.Finding {
	found, err := settle.Flows(ctx, n.flows, api, now, d)
	if err != nil {
		return []proxy.Finding{kubeproxy.UnreadFlows(err)}
	}
	return found
}

// readBeLiberal returns whether conntrack accepts packets outside of its window, or nil if unknown.
func readBeLiberal(h *host.Host) *bool {
	v, err := h.ReadSysctl("net/netfilter/nf_conntrack_tcp_be_liberal")
	if err != nil {
		return nil
	}
	liberal := v != "0"
	return &liberal
}
