package path

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"nodegate/internal/ruleset"
)

// NotOfPods reports whether the packets of Pods certainly do not use a link, given as in a rule:
// Node.Elsewhere. They may leave by any uplink.
func NotOfPods(pattern string, in bool) bool {
	if in {
		for _, other := range []string{"br-", "tailscale", "wg"} {
			if strings.HasPrefix(pattern, other) {
				return true
			}
		}
	}
	return isOfContainers(pattern)
}

// isOfContainers reports whether a link belongs to containers or virtual machines outside the
// cluster. A bridge of Docker is br- and twelve digits; br-ex is an uplink.
func isOfContainers(pattern string) bool {
	name := strings.TrimRight(pattern, "+*")
	for _, other := range []string{"docker", "virbr", "lxcbr", "podman", "cni-podman", "nerdctl", "vnet"} {
		if strings.HasPrefix(name, other) {
			return true
		}
	}
	digits, is := strings.CutPrefix(name, "br-")
	return name == "lo" || is && len(digits) == 12 && strings.Trim(digits, "0123456789abcdef") == ""
}

// isOfPods reports whether a link is one of Pods by the name that a CNI plugin gives it.
func isOfPods(name string) bool {
	for _, known := range []string{"cni", "cbr", "cali", "veth", "lxc", "eni", "kube-bridge", "weave", "azv", "gke", "ovn-k8s", "antrea"} {
		if strings.HasPrefix(name, known) && !isOfContainers(name) {
			return true
		}
	}
	return false
}

// isOnlyOfPods reports whether packets to other machines do not leave by a link. Those of some CNI
// plugins also carry the overlay network.
func isOnlyOfPods(pattern string) bool {
	return pattern == "cni0" || pattern == "cbr0" || pattern == "cali+"
}

// BackToPods returns the link by which packets to Pods of this node leave that came in by a link of Pods. It
// returns "" if that is not known.
func BackToPods(in string) string {
	if isOnlyOfPods(in) {
		return in
	}
	return ""
}

// IsOfAllPods reports whether a link, given as in a rule, is one of all Pods of the node: a bridge
// or a pattern. A rule for the link of one Pod concerns only that Pod.
func IsOfAllPods(pattern string) bool {
	if strings.HasSuffix(pattern, "+") || strings.HasSuffix(pattern, "*") {
		return isOfPods(pattern)
	}
	return slices.Contains([]string{"cni0", "cbr0", "kube-bridge", "weave", "antrea-gw0", "ovn-k8s-mp0"}, pattern)
}

// PodLinks returns the links of all Pods that rules name, without the links of programs that enforce NetworkPolicies: a packet that comes
// in by such a link certainly matches. It leaves out links that no link of the node matches, if a list of the node's links is given.
func PodLinks(sets []*ruleset.Set, family string, present []string) (links []string) {
	const most = 16
	exists := func(pattern string) bool {
		return len(present) == 0 || slices.ContainsFunc(present, func(name string) bool { return matchLink(name, pattern) == Yes })
	}
	add := func(chain, in string) {
		if IsOfAllPods(in) && exists(in) && !EnforcesPolicies(Owner(chain)) && !slices.Contains(links, in) && len(links) < most {
			links = append(links, in)
		}
	}
	eachLink(sets, family, add)
	return links
}

// eachLink calls add with the link by which packets come in, of each rule outside of kube-proxy's chains.
func eachLink(sets []*ruleset.Set, family string, add func(chain, in string)) {
	for _, set := range sets {
		for _, save := range set.Saves {
			for _, t := range save.Tables {
				for _, c := range t.Chains {
					if save.Family != family || strings.HasPrefix(c.Name, "KUBE-") { // most chains are those of Services
						continue
					}
					for i := range c.Rules {
						add(c.Name, c.Rules[i].Extra().In)
					}
				}
			}
		}
		for _, t := range set.Foreign {
			for _, c := range t.Chains {
				for i := 0; t.Family != "bridge" && t.Family != "netdev" && i < len(c.Rules); i++ {
					add(c.Name, c.Rules[i].In)
				}
			}
		}
	}
}

// EnforcesPolicies reports whether a program enforces NetworkPolicies, which drop packets of Pods as they should.
func EnforcesPolicies(owner string) bool {
	return slices.Contains([]string{"Calico", "Cilium", "kube-router", "Weave Net", "Antrea", "OVN-Kubernetes", "kube-network-policies",
		"kindnet"}, owner)
}

// outsideServices skips kube-proxy's chains that only concern addresses of Services.
func outsideServices(table, chain string) Visit {
	switch chain {
	case "KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES", "KUBE-NODEPORTS", "KUBE-PROXY-FIREWALL", "KUBE-HOSTPORTS":
		return Skip
	}
	if table == ruleset.KubeProxyTable {
		return Skip
	}
	return Follow
}

// Forwarded returns the ways of a packet to another machine that is not an address of a Service.
func (all *Rules) Forwarded(p Packet) []Way {
	p.ToNode = No
	return all.Walk(p, "", outsideServices)
}

// Delivered returns the ways of a packet to a port of this node that is not a node port.
func (all *Rules) Delivered(p Packet) []Way {
	p.ToNode = Yes
	return all.Walk(p, "", outsideServices)
}

// ToNode returns the ways of a packet to an address of this node, which kube-proxy's rules may have translated.
func (all *Rules) ToNode(p Packet, translated bool) []Way {
	p.dnat = translated
	return all.Delivered(p)
}

// NotOfUplink reports whether packets of other machines certainly do not come in by a link: Node.Elsewhere.
func NotOfUplink(pattern string, in bool) bool {
	return in && (isOfContainers(pattern) || isOfPods(pattern))
}

// Loss is a rule that certainly drops packets, or gives them a source to which replies may not come back. With Way.Open it
// drops them, or all of them but some, if that condition holds.
type Loss struct {
	Step     Step
	Way      Way
	Protocol string // TCP or UDP, or "" if the rule drops both
}

// Losses returns the rules that drop packets to other machines. A rule often accepts ICMP, or one
// address, before another drops everything else: so the packets are of TCP and of UDP, and their
// destination is not an address that a rule names, nor one of Pods if the source is somewhere in their range.
func (all *Rules) Losses(p Packet) []Loss {
	if p.Unnamed = true; !p.NotTo.IsValid() && p.Source.IsValid() && !p.Source.IsSingleIP() {
		p.NotTo = p.Source
	}
	return all.losses(p)
}

// MayLoseTranslated reports whether a rule may drop packets that kube-proxy's rules have translated, to a Pod or to this node.
func (all *Rules) MayLoseTranslated(p Packet) bool {
	drops := func(w Way) bool { return w.dropped() }
	return slices.ContainsFunc(all.Translated(p), drops) || slices.ContainsFunc(all.ToNode(p, true), drops)
}

func (all *Rules) losses(p Packet) (list []Loss) {
	for _, protocol := range []string{"tcp", "udp"} {
		p.Protocol = protocol
		ways := all.Forwarded
		if p.ToNode == Yes {
			ways = all.Delivered
		}
		got := ways(p)
		step, w, lost := DropsSurely(got)
		if !lost {
			step, w, lost = all.SourcedElsewhere(got)
		}
		if !lost {
			step, w, lost = MayDrop(got)
		}
		switch {
		case !lost:
		case len(list) > 0 && sameStep(&list[0].Step, &step):
			list[0].Protocol = ""
		default:
			list = append(list, Loss{step, w, strings.ToUpper(protocol)})
		}
	}
	return list
}

// RepliesLost returns the rules that drop packets of established connections: replies from other machines to Pods, or to the node.
func (all *Rules) RepliesLost(p Packet) []Loss {
	p.State, p.FirstReply, p.UnnamedFrom = StateEstablished, true, true
	return all.losses(p)
}

// ToEndpoints returns the rules that drop packets which kube-proxy's rules have translated, to Pods
// in a range. Their protocol is known, their port is not.
func (all *Rules) ToEndpoints(p Packet, pods netip.Prefix) []Loss {
	p.dnat = true
	return all.ToPods(p, pods)
}

// ToPods returns the rules that drop packets to Pods in a range.
func (all *Rules) ToPods(p Packet, pods netip.Prefix) []Loss {
	p.ToNode, p.Destination = No, pods
	return all.losses(p)
}

// ToNodeLost returns the rules that drop packets to this node, whatever their port is.
func (all *Rules) ToNodeLost(p Packet) []Loss {
	p.ToNode = Yes
	return all.losses(p)
}

// Translated returns the ways of a packet which kube-proxy's rules have translated, to an endpoint on a Pod or on another machine.
func (all *Rules) Translated(p Packet) []Way {
	p.dnat = true
	return all.Forwarded(p)
}

// DropsSurely returns the step that drops a packet, if the packet is certainly lost: because all ways end in a drop, or because no
// unknown match leads to this one. A step whose own match is not known is never the answer.
func DropsSurely(ways []Way) (step Step, of Way, lost bool) {
	through := slices.ContainsFunc(ways, func(w Way) bool { return !w.dropped() })
	for _, w := range ways {
		if !w.dropped() || through && !w.Sure || len(w.Steps) == 0 {
			continue
		}
		if last := w.Steps[len(w.Steps)-1]; last.Unsure == "" {
			if !through {
				w.Chance = 1
			}
			w.Open = nil
			return last, w, true
		}
	}
	return Step{}, Way{}, false
}

// MayDrop returns the step that drops a packet of this class if a condition holds that nothing known decides: Way.Open.
func MayDrop(ways []Way) (step Step, of Way, may bool) {
	for _, w := range ways {
		if w.dropped() && w.Open != nil && len(w.Steps) > 0 {
			return w.Steps[len(w.Steps)-1], w, true
		}
	}
	return Step{}, Way{}, false
}

func (w *Way) dropped() bool { return w.End == Dropped || w.End == Rejected }

// Percent formats a share: "1 %", "0.1 %".
func Percent(share float64) string { return strconv.FormatFloat(share*100, 'g', 2, 64) + " %" }
