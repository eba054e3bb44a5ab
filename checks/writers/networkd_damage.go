package writers

import (
	"context"
	"fmt"
	"slices"
	"time"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// networkdDamage: systemd-networkd started again, and what the CNI had made is gone.
func networkdDamage() checks.Problem {
	return checks.Problem{
		Name: "writers.networkd-damage", Stages: []checks.Stage{checks.Run}, Severity: policy.Block,
		Detects: "Routes and routing rules of the CNI vanished all at once when systemd-networkd started again.",
		Symptom: "After an update of systemd in the night Pods of this node reach no others, or only some do; every Pod runs, the node is Ready.",
		How: "Watch remembers the routes and rules that neither the kernel, advertisements, DHCP nor a static configuration made, and the " +
			"permanent neighbour and forwarding entries of VXLAN links. Two or more " +
			"that are gone after systemd-networkd started, though their link is still there, are shown until they are back. " +
			"networkd.foreign-routes judges its configuration before.",
		Remedy: "restart the CNI's agent on this node, which makes them again; then set ManageForeignRoutes=no and " +
			"ManageForeignRoutingPolicyRules=no in /etc/systemd/networkd.conf.d/99-cni.conf",
		TradeOff: "networkd no longer removes stale routes of other programs.",
		Ref:      "https://github.com/kubernetes/kops/issues/17433",
		Inspect:  inspectNetworkdDamage,
	}
}

const (
	networkd   = "systemd-networkd.service"
	shownLost  = 10
	fewestLost = 2
)

func inspectNetworkdDamage(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("the routes and rules that were there")
	if h.Memory == nil {
		s.Skip = "only watch remembers what was there"
		return s, nil
	}
	unit, err := h.Units.Crashes(ctx, networkd)
	if err != nil {
		return s, err
	}
	if unit.Active == "inactive" {
		s.Skip = "systemd-networkd is off"
		return s, nil
	}
	now, err := h.Links.Foreign(ctx)
	if err != nil {
		return s, err
	}
	links, err := h.Links.List(ctx)
	if err != nil {
		return s, err
	}
	gone := func(f host.Foreign) bool {
		stands := f.Link == "" || slices.ContainsFunc(links, func(l host.Link) bool { return l.Name == f.Link })
		return stands && !slices.Contains(now, f)
	}
	kept := func(f host.Foreign) bool { return !gone(f) }
	m := h.Memory
	m.Lost = slices.DeleteFunc(m.Lost, kept)
	if !m.Since.IsZero() && !unit.Since.Equal(m.Since) {
		if lost := slices.DeleteFunc(m.Foreign, kept); len(lost) >= fewestLost {
			m.Lost = append(m.Lost, lost...)
		}
	}
	m.Foreign, m.Since = now, unit.Since
	if len(m.Lost) == 0 {
		return s, nil
	}
	s.Evidence = []checks.Evidence{checks.Seen(networkd, unit.Active+" since "+unit.Since.Format(time.RFC3339))}
	for _, f := range m.Lost[:min(len(m.Lost), shownLost)] {
		s.Evidence = append(s.Evidence, checks.Seen("gone", f.Text))
	}
	s.Differs(fmt.Sprintf("%d of them gone since systemd-networkd started again", len(m.Lost)), "")
	return s, nil
}
