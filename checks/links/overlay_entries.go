package links

import (
	"context"
	"fmt"

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
		Detects: "A VXLAN link of the CNI has a route to a node, but no entry that says where its gateway is.",
		Symptom: "Pods of this node reach those of all nodes but one; that one is reached from all others.",
		How: "Of each gateway of the routes over a VXLAN link that learns nothing (flannel's, Calico's): its permanent neighbour entry and, " +
			"for the address in it, the forwarding entry. What is missing for 2 seconds is said. Cilium's links have neither.",
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
		if err != nil || s.Pass || s.Skip != "" || look == agentTime {
			return s, err
		}
		if err := checks.Pause(ctx); err != nil {
			return s, err
		}
	}
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
