package links

import (
	"context"
	"fmt"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// maxRechecks is the number of further inspections, 100 ms apart, that give an agent time to add missing entries.
const maxRechecks = 20

// overlayEntries detects routes over a VXLAN link without the neighbour and forwarding entries that they need.
func overlayEntries() checks.Problem {
	return checks.Problem{
		Name: "overlay.entries", Stages: []checks.Stage{checks.Run}, Severity: policy.Warn,
		Detects: "A VXLAN link of the CNI has a route to a node but no entry for its gateway, was recreated without its routes, or is missing.",
		Symptom: "Pods on this node cannot reach the Pods of one node, which all other nodes can reach. Without " +
			"routes, they cannot reach Pods on any other node.",
		How: "For each gateway of the routes over a VXLAN link with learning off (flannel's, Calico's), the check reads the permanent " +
			"neighbour entry and the forwarding entry for its MAC address. It reports an entry that is missing for 2 seconds. Cilium's links use " +
			"neither. `nodegate watch` remembers the links that had such routes: a link that was deleted and recreated without routes (as " +
			"flanneld 0.28 does by itself) is reported until it has one. flannel's link is missing if /run/flannel/subnet.env has a tunnel's MTU, " +
			"a CNI configuration calls flannel, and no link is named flannel*.",
		Remedy: "restart the CNI's agent on this node to restore the entries and routes",
		TradeOff: "None for running Pods: the routes stay while the agent restarts. Entries added manually (`ip " +
			"neigh`, `bridge fdb`) do not follow the next change of that node.",
		Ref:     "https://github.com/alibaba/kubeskoop",
		Inspect: inspectOverlayEntries,
	}
}

func inspectOverlayEntries(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	for recheck := 0; ; recheck++ {
		hops, err := h.Links.Hops(ctx)
		s := judgeHops(hops)
		var lost []string
		if err == nil {
			lost, err = lostLinks(ctx, h, hops)
		}
		if lost != nil {
			s.Skip = ""
			s.Differs(strings.Join(lost, ", "), "")
		}
		if err != nil || s.Pass || s.Skip != "" || recheck == maxRechecks {
			return s, err
		}
		if h, err = checks.Pause(ctx, h); err != nil {
			return s, err
		}
	}
}

// lostLinks describes the tunnels that are missing or lack their routes.
func lostLinks(ctx context.Context, h *host.Host, hops []host.Hop) ([]string, error) {
	links, err := h.Links.List(ctx)
	if err != nil {
		return nil, err
	}
	bare := recreatedWithoutRoutes(h, links, hops)
	missing, err := lostFlannelLink(h, links)
	if missing != "" {
		bare = append(bare, missing)
	}
	return bare, err
}

// recreatedWithoutRoutes returns the VXLAN links that were deleted and recreated without the routes that they had, as
// far as watch remembers these.
func recreatedWithoutRoutes(h *host.Host, links []host.Link, hops []host.Hop) (bare []string) {
	if h.Memory == nil {
		return nil
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
			bare = append(bare, fmt.Sprintf("%s was recreated without its routes through %d gateways", l.Name, was.Gateways))
		default: // the other nodes have left the cluster
			delete(h.Memory.Tunnels, l.Name)
		}
	}
	return bare
}

func judgeHops(hops []host.Hop) checks.State {
	s := checks.Passing("a neighbour and a forwarding entry for each gateway")
	if len(hops) == 0 {
		s.Skip = "no gateway routes over a VXLAN link with learning off"
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
		s.Differs(fmt.Sprintf("%d of %d gateways lack an entry", missing, len(hops)), "")
	}
	return s
}
