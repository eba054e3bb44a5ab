// Package audit compares this node's rules with the API server: once for `nodegate audit`, and for as long as it runs for
// nodegate watch.
package audit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"time"

	"nodegate/cmd/nodegate/internal/audit/settle"
	"nodegate/internal/host"
	"nodegate/internal/kube"
	"nodegate/internal/proxyrules"
	"nodegate/internal/ruleset"
)

// Machine is this node, looked at again and again.
type Machine struct {
	Host     *host.Host
	Presence kube.Presence

	// Of kube-proxy, as last seen.
	mode     string
	families int
	silent   time.Time // when it last did not say what it has written
}

// NewMachine returns the node that h is.
func NewMachine(h *host.Host) *Machine {
	return &Machine{Host: h, Presence: kube.Presence{Host: h}}
}

// Rules reads and judges the rules. nf_conntrack_tcp_be_liberal is read after them each time: kube-proxy may be told to set it when
// it starts (conntrack.tcpBeLiberal), which it does before it writes rules.
func (n *Machine) Rules(ctx context.Context) (proxyrules.Judgment, error) {
	sets, err := n.Host.Rulesets(ctx)
	if err != nil {
		return proxyrules.Judgment{}, err
	}
	rep := proxyrules.Judge(sets, proxyrules.Options{
		BeLiberal: beLiberal(n.Host), NodePortAddresses: n.Presence.NodePortAddresses,
		RouteLocalnet: func() bool { return routeLocalnet(n.Host) },
		ExcludeCIDRs:  n.Presence.ExcludeCIDRs, NoExternalIPs: sync.OnceValue(n.Presence.NoExternalIPs),
	})
	n.mode, n.families = rep.Mode, len(rep.Families)
	n.unwritten(ctx, &rep)
	rep.Listening = sync.OnceValues(n.Presence.Ports)
	rep.Wrote = func(family string) (wrote, known bool) {
		figures, _ := n.Presence.Figures(ctx)
		return figures.Wrote(family)
	}
	return rep, nil
}

// unwritten tells a table that kube-proxy has not written since it started, as its metrics say, from one that somebody has flushed.
func (n *Machine) unwritten(ctx context.Context, rep *proxyrules.Judgment) {
	flushed := func(f proxyrules.Finding) bool { return f.Name == "kubeproxy.table.flushed" }
	if !slices.ContainsFunc(rep.Findings, flushed) {
		return
	}
	figures, _ := n.Presence.Figures(ctx)
	for i, f := range rep.Findings {
		if said, known := figures.Of(f.Family); flushed(f) && known && said.LastSync.IsZero() {
			out := proxyrules.NewCollector()
			out.Add(proxyrules.Finding{Name: "kubeproxy.table.unwritten", Family: f.Family, Table: f.Table, Line: f.Line,
				Message: fmt.Sprintf("table %s has no rule of kube-proxy, which has written none since it started, as its metrics say", f.Table)})
			rep.Findings[i] = out.List[0]
		}
	}
}

// Proxy looks for kube-proxy.
func (n *Machine) Proxy(ctx context.Context) []proxyrules.Finding { return n.Presence.Look(ctx) }

// Writer looks whether kube-proxy is writing rules.
func (n *Machine) Writer() settle.Writer {
	p, runs, found := n.Presence.Writer()
	if !found {
		return settle.Writer{}
	}
	return settle.Writer{PID: p.PID, Runs: runs, Used: p.Used}
}

// Written asks kube-proxy, unless it has just not answered. In IPVS mode one writing is hundreds of short programs, and takes long where
// the node is slow; in the others a writing that failed is tried again only after syncPeriod, 30 s.
func (n *Machine) Written() map[string]settle.Written {
	programs := n.mode == "ipvs"
	if !programs && time.Since(n.silent) < time.Minute {
		return nil
	}
	all := map[string]settle.Written{}
	figures, slow := n.Presence.Figures(context.Background())
	switch {
	case slow && programs: // it may have heard of anything
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

// Generation returns that of the rules.
func (n *Machine) Generation(ctx context.Context) (generation string, sure bool, err error) {
	return n.Host.RulesGeneration(ctx)
}

// Spent returns what this process has used of the processors.
func (n *Machine) Spent() time.Duration { return n.Host.ProcessorTime() }

// Flows looks for what conntrack still believes. A table that cannot be read is a finding that says so.
func (n *Machine) Flows(ctx context.Context, api settle.API, now *proxyrules.Versions, d time.Duration) []proxyrules.Finding {
	found, err := settle.Flows(ctx, kube.Flows, api, now, d)
	if err != nil {
		return []proxyrules.Finding{kube.UnreadFlows(err)}
	}
	return found
}

// beLiberal returns whether conntrack lets packets out of its window pass, nil where that is not known.
func beLiberal(h *host.Host) *bool {
	v, err := h.ReadSysctl("net/netfilter/nf_conntrack_tcp_be_liberal")
	if err != nil {
		return nil
	}
	liberal := v != "0"
	return &liberal
}

// routeLocalnet reports whether some interface may route 127.0.0.0/8: the kernel takes the value of all or its own, whichever is 1
// (IN_DEV_ROUTE_LOCALNET of include/linux/inetdevice.h). True also where that is not known.
func routeLocalnet(h *host.Host) bool {
	keys, err := h.GlobSysctl("net/ipv4/conf/*/route_localnet")
	if err != nil || len(keys) == 0 {
		return true
	}
	return slices.ContainsFunc(keys, func(key string) bool {
		v, err := h.ReadSysctl(key)
		return v != "0" && !errors.Is(err, fs.ErrNotExist) // the interface may have gone
	})
}
