package datapath

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"

	"nodegate/internal/audit"
	"nodegate/internal/host"
	"nodegate/internal/host/netns"
	"nodegate/internal/verdict"
)

// ProveService makes one connection from the node to a Service, and a second if that fails. If both fail, packets in a copy of the node's
// network look for the cause. The node is accused only if a rule or route of this node loses them there, and no NetworkPolicy may want
// that. Every other failure is an error: the endpoint, its node, the network between or a Service without endpoints may be the cause.
func ProveService(ctx context.Context, h *host.Host, addr string, o ServiceOptions) (host.Proof, error) {
	n, err := netns.Current(ctx)
	if err != nil {
		return host.Proof{}, err
	}
	defer n.Close()
	return proveIn(ctx, n, h, addr, o)
}

func proveIn(ctx context.Context, n *netns.Namespace, h *host.Host, addr string, o ServiceOptions) (host.Proof, error) {
	o.N = 1
	var r ServiceResult
	for range 2 {
		var err error
		if r, err = serviceIn(ctx, n, addr, o); err != nil {
			return host.Proof{}, err
		}
		if r.Failed == 0 {
			return host.Proof{Pass: true, Evidence: fmt.Sprintf("%s answered after %s", r.Target, r.Latency.Max)}, nil
		}
	}
	why := ""
	for reason := range r.Reasons {
		why = reason
	}
	seen := fmt.Sprintf("two connections from %s to %s failed (%s)", r.Source, r.Target, why)
	found, known, err := findLoss(ctx, h, r.Target)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return host.Proof{}, fmt.Errorf("%s: run it as root, which may read the rules: %w", seen, err)
	case err != nil:
		return host.Proof{}, fmt.Errorf("%s: %w", seen, err)
	case !known:
		return host.Proof{}, fmt.Errorf("%s: other programs' rules and routes were not tried, because kube-proxy's rules have no Service with "+
			"this address", seen)
	case found == nil:
		return host.Proof{}, fmt.Errorf("%s: no rule or route of this node loses such packets, or one of kube-proxy or of a NetworkPolicy does: "+
			"the endpoint, its node or the network between may be the cause; run `nodegate audit`", seen)
	}
	return host.Proof{Lost: found.Message, Evidence: seen, Remedy: found.Remedy}, nil
}

// findLoss returns what certainly loses the node's packets to an address of a Service in a copy of its network, or nil. known: kube-proxy's
// rules have such a Service.
func findLoss(ctx context.Context, h *host.Host, to netip.AddrPort) (found *audit.Finding, known bool, err error) {
	sets, err := h.Rulesets(ctx)
	if err != nil {
		return nil, false, err
	}
	rep := audit.Judge(sets, audit.Options{})
	for _, s := range rep.Services {
		isHere := func(ip string) bool { return ip == to.Addr().String() }
		if s.Port != int(to.Port()) || !isHere(s.ClusterIP) && !slices.ContainsFunc(slices.Concat(s.ExternalIPs, s.LoadBalancerIPs), isHere) {
			continue
		}
		known = true
		ways, err := audit.AskFrom(ctx, h, &rep, s.Name, "node")
		if err != nil {
			return nil, known, err
		}
		ways.Losses = slices.DeleteFunc(ways.Losses, func(l audit.Loss) bool {
			return !slices.ContainsFunc(l.Flows, func(f audit.Flow) bool { return f.To == to && f.Lost > 0 })
		})
		all, _ := audit.FindLosses(&ways)
		if i := slices.IndexFunc(all, func(f audit.Finding) bool { return f.Verdict == verdict.Fail }); i >= 0 {
			return &all[i], known, nil
		}
	}
	return nil, known, nil
}
