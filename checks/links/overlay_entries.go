package links

import (
	"context"
	"fmt"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// agentTime is how often it is looked again, 100 ms apart, before an agent is said to have left something out.
const agentTime = 20

// overlayEntries: a route over a VXLAN link leads nowhere without the entries that go with it.
func overlayEntries() checks.Problem {
	return checks.Problem{
		Name: "overlay.entries", Stages: []checks.Stage{checks.Run}, Severity: policy.Warn,
		Detects: "A VXLAN link of the CNI has a route to a node, but no entry that says where its gateway is; or it was made anew without " +
			"its routes.",
		Symptom: "Pods of this node reach those of all nodes but one; that one is reached from all others. Without routes they reach no " +
			"other node.",
		How: "Of each gateway of the routes over a VXLAN link that learns nothing (flannel's, Calico's): its permanent neighbour entry and, " +
			"for the address in it, the forwarding entry. What is missing for 2 seconds is said. Cilium's links have neither. Watch " +
			"remembers the links that had such routes: one that was deleted and made anew (as flanneld 0.28 does by itself) and has none " +
			"is said until it has one.",
		Remedy: "restart the CNI's agent on this node, which makes them again",
		TradeOff: "None for Pods that run: the routes stay while the agent is away. With the entries by hand (ip neigh, bridge fdb) the next " +
			"change of that node is missed again.",
		Ref:     "https://github.com/alibaba/kubeskoop",
		Inspect: inspectOverlayEntries,
	}
}

func inspectOverlayEntries(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	for look := 0; ; look++ {
		hops, err := h.Links.Hops(ctx)
		s := judgeHops(hops)
		var bare []string
		if err == nil {
			bare, err = madeAnew(ctx, h, hops)
		}
		if bare != nil {
			s.Skip = ""
			s.Differs(strings.Join(bare, ", "), "")
		}
		if err != nil || s.Pass || s.Skip != "" || look == agentTime {
			return s, err
		}
		if err := checks.Pause(ctx); err != nil {
			return s, err
		}
	}
}

// madeAnew returns the VXLAN links that were made anew without the routes that their predecessors had, as far as watch
// remembers these.
func madeAnew(ctx context.Context, h *host.Host, hops []host.Hop) (bare []string, err error) {
	if h.Memory == nil {
		return nil, nil
	}
	links, err := h.Links.List(ctx)
	if err != nil {
		return nil, err
	}
	gateways := map[string]int{}
	for _, hop := range hops {
		gateways[hop.Link]++
	}
	for _, l := range links {
		was, known := h.Memory.Tunnels[l.Name]
		switch n := gateways[l.Name]; {
		case n > 0:
			if h.Memory.Tunnels == nil {
				h.Memory.Tunnels = map[string]host.Tunnel{}
			}
			h.Memory.Tunnels[l.Name] = host.Tunnel{Index: l.Index, Gateways: n}
		case known && was.Index != l.Index:
			bare = append(bare, fmt.Sprintf("%s made anew, without the routes by %d gateways that it had", l.Name, was.Gateways))
		default: // the other nodes have left
			delete(h.Memory.Tunnels, l.Name)
		}
	}
	return bare, nil
}

func judgeHops(hops []host.Hop) checks.State {
	s := checks.Passing("a neighbour and a forwarding entry for each gateway")
	if len(hops) == 0 {
		s.Skip = "no routes with gateways over a VXLAN link that learns nothing"
		return s
	}
	missing := 0
	for _, hop := range hops {
		lacks := ""
		switch {
		case hop.MAC == "":
			lacks = "no neighbour entry"
		case hop.Remote == "":
			lacks = "no forwarding entry for " + hop.MAC
		default:
			continue
		}
		if missing++; missing <= 10 {
			s.Evidence = append(s.Evidence, checks.Seen(hop.Link, "via "+hop.Gateway+": "+lacks))
		}
	}
	if missing > 0 {
		s.Differs(fmt.Sprintf("%d of %d gateways without", missing, len(hops)), "")
	}
	return s
}
