package links

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/plain"
	"nodegate/policy"
)

// vmxnet3Offload detects a VXLAN tunnel whose packets a vmxnet3 interface segments and checksums.
func vmxnet3Offload() checks.Problem {
	return checks.Problem{
		Name: "vmxnet3.tunnel-offload", Stages: []checks.Stage{checks.Run}, Severity: policy.Warn,
		Detects: "A VXLAN tunnel uses a vmxnet3 interface with tunnel offloads, whose packets ESXi may drop.",
		Symptom: "Between nodes only ICMP works: TCP and UDP of Pods time out. tcpdump on the other node shows no packet, or a bad checksum.",
		How: "`ethtool -i` of a VXLAN tunnel's parent, or of any interface if the tunnel names none, reports vmxnet3, and " +
			"tx-udp_tnl-segmentation or tx-udp_tnl-csum-segmentation is on. Whether packets are lost depends on ESXi, NSX " +
			"and the port of the tunnel (8472 without NSX, 4789 with it), which the node cannot know.",
		Remedy:   "turn off tx-udp_tnl-segmentation and tx-udp_tnl-csum-segmentation of the interface: `use \"vmware\" {}` does it at every boot",
		TradeOff: "The CPU segments and checksums tunnelled packets.",
		Ref:      "https://github.com/projectcalico/calico/issues/4727",
		Inspect:  inspectVMXNET3,
	}
}

func inspectVMXNET3(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("no tunnel offload on vmxnet3")
	links, err := h.Links.List(ctx)
	if err != nil {
		return s, err
	}
	var wrong, commands []string
	found := false
	for _, card := range links {
		tunnel := tunnelOver(card, links)
		if card.Kind != "" || tunnel == nil {
			continue
		}
		driver, err := h.DriverOf(ctx, card.Name)
		if err != nil {
			return s, err
		}
		if driver != "vmxnet3" {
			continue
		}
		features, err := h.Links.Features(ctx, card.Name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed since it was listed
		}
		if err != nil {
			return s, err
		}
		found = true
		s.Evidence = append(s.Evidence, checks.Seen(tunnel.Name, fmt.Sprintf("VXLAN over %s, port %d", card.Name, tunnel.VXLAN.Port)))
		off := ""
		for _, name := range slices.Sorted(maps.Keys(features)) {
			if strings.HasPrefix(name, "tx-udp_tnl-") {
				s.Evidence = append(s.Evidence, checks.Seen(card.Name, name+" "+features[name].String()))
				if features[name].Active {
					off += " " + name + " off"
				}
			}
		}
		if off != "" {
			wrong = append(wrong, card.Name+" offloads packets of "+tunnel.Name)
			commands = append(commands, "ethtool -K "+plain.Quote(card.Name)+off)
		}
	}
	switch {
	case !found:
		s.Skip = "no VXLAN tunnel over a vmxnet3 interface"
	case wrong != nil:
		s.Differs(strings.Join(wrong, ", "),
			"run `"+strings.Join(commands, "; ")+"` now; `use \"vmware\" {}` in the policy does it at every boot")
	}
	return s, nil
}

// tunnelOver returns a VXLAN link that sends through a card, or nil. The parent may be a bond of cards; a VLAN or another link above the
// card is not followed, and counts as any card.
func tunnelOver(card host.Link, links []host.Link) *host.Link {
	for i, l := range links {
		if l.VXLAN == nil {
			continue
		}
		parent := l.VXLAN.Parent
		at := slices.IndexFunc(links, func(o host.Link) bool { return o.Name == parent })
		switch {
		case parent == card.Name, parent == "", at >= 0 && links[at].Kind == "bond" && card.Master == parent,
			at >= 0 && links[at].Kind != "" && links[at].Kind != "bond":
			return &links[i]
		}
	}
	return nil
}
