package path

import (
	"slices"
	"strings"

	"nodegate/internal/ruleset"
)

// LinkChain is a base chain of nftables at a hook of links or bridges that may lose packets. A walk does not come to these
// hooks: which of them a packet passes depends on links and bridges.
type LinkChain struct {
	Step    Step     // the rule or policy that drops, or one that may
	Devices []string // its links; nil at a hook of bridges, or if they are not known
	Surely  bool     // it drops every packet
	ARP     bool     // it sees only packets of ARP

	base *base
}

// AtLinks reports whether the chain is at a hook of links, not of bridges.
func (c *LinkChain) AtLinks() bool { return c.Step.Hook == "INGRESS" || c.Step.Hook == "EGRESS" }

// addLinkChain keeps a base chain if its hook is one of links or bridges.
func (all *Rules) addLinkChain(c *ruleset.NFTChain, ready *chain, family string) bool {
	hook := strings.ToUpper(c.Hook)
	if hook == "" || !slices.Contains([]string{"bridge", "netdev", "arp"}, family) && slices.Contains(iptablesHooks(""), hook) {
		return false
	}
	all.links = append(all.links, base{chain: ready, hook: hook, drops: c.Policy == "drop", devices: c.Devices})
	return true
}

// LinkChains returns the chains at hooks of links and bridges that may lose packets of Pods or of the node.
func (all *Rules) LinkChains() (list []LinkChain) {
	for i := range all.links {
		b := &all.links[i]
		if len(b.devices) > 0 && !slices.ContainsFunc(b.devices, func(d string) bool { return !isOfContainers(d) }) {
			continue
		}
		if ways := all.linkWays(b); slices.ContainsFunc(ways, func(w Way) bool { return w.End != Passed }) {
			c := b.linkChain(ways)
			c.base = b
			list = append(list, c)
		}
	}
	return list
}

// linkWays returns the ways of any packet through a chain at a hook of links or bridges.
func (all *Rules) linkWays(b *base) []Way {
	every := Mark{Unknown: ^uint32(0)}
	p := Packet{Mark: every, ConnMark: every, ARP: b.isARP()}
	if len(b.devices) == 1 && b.hook == "EGRESS" {
		p.Out = b.devices[0]
	} else if len(b.devices) == 1 {
		p.In = b.devices[0]
	}
	return all.follow(nil, func(w *walk) {
		w.hook = b.hook
		for _, s := range w.base(b, state{p: p, weight: 1}) {
			w.finish(s, Passed)
		}
	})
}

// AtLink returns the ways of a packet through a chain at a hook of links or bridges, and false if it does not come there.
func (all *Rules) AtLink(c *LinkChain, p Packet) ([]Way, bool) {
	switch {
	case c.ARP, !c.AtLinks() && (p.In == "" || p.In != p.Out || !HasBridge([]string{p.In})),
		c.Step.Hook == "INGRESS" && !slices.Contains(c.Devices, p.In), c.Step.Hook == "EGRESS" && !slices.Contains(c.Devices, p.Out):
		return nil, false
	}
	return all.follow(nil, func(w *walk) {
		w.hook = c.base.hook
		for _, s := range w.base(c.base, state{p: p, weight: 1}) {
			w.finish(s, Passed)
		}
	}), true
}

func (b *base) isARP() bool { return strings.HasPrefix(b.shown, "arp ") }

func (b *base) linkChain(ways []Way) LinkChain {
	c := LinkChain{Devices: b.devices, ARP: b.isARP(), Step: Step{Hook: b.hook, Table: b.shown, Chain: b.name, Source: b.source,
		Program: b.program}}
	if step, w, lost := DropsSurely(ways); lost {
		c.Step, c.Surely = step, w.Chance > 0.999
		return c
	}
	for _, w := range ways {
		if w.End != Passed && len(w.Steps) > 0 { // none if the rules are too many to follow
			c.Step = w.Steps[len(w.Steps)-1]
			break
		}
	}
	return c
}

// HasBridge reports whether one of the node's links is a bridge of all its Pods.
func HasBridge(present []string) bool {
	return slices.ContainsFunc(present, func(name string) bool {
		return slices.Contains([]string{"cni0", "cbr0", "kube-bridge", "weave"}, name)
	})
}
