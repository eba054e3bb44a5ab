package proxy

import (
	"fmt"
	"slices"
	"strings"

	"nodegate/internal/audit/path"
)

// judgeLinks judges the chains at hooks of links and bridges. They lose packets surely if they drop all of them, on the
// uplink or on links of all Pods; otherwise a note names them.
func (r *reach) judgeLinks(opts *Options) {
	for _, c := range r.rules.LinkChains() {
		if who, all := losesAll(&c, opts); all && !path.EnforcesPolicies(c.Step.Owner()) {
			r.add(c.Step, path.Way{Chance: 1}, who).link = true
			continue
		}
		if r.judgeAtLink(&c) {
			continue
		}
		note := describeLinkChain(&c) + ", and is not followed: it is not known whether packets of Pods are lost there"
		if !slices.Contains(r.rep.Notes, note) { // both families have the chain
			r.rep.Notes = append(r.rep.Notes, note)
		}
	}
}

// judgeAtLink judges the packets of Pods, and their replies, at a chain of a link or of bridges.
func (r *reach) judgeAtLink(c *path.LinkChain) (lost bool) {
	for _, f := range r.directFlows() {
		back := f.packet
		back.Source, back.Destination, back.SourcePort, back.Port = back.Destination, back.Source, back.Port, back.SourcePort
		back.In, back.Out, back.State = back.Out, back.In, path.StateEstablished
		for i, p := range []path.Packet{f.packet, back} {
			ways, comes := r.rules.AtLink(c, p)
			step, w, is := path.DropsSurely(ways)
			if !comes || !is || path.EnforcesPolicies(step.Owner()) {
				continue
			}
			who := f.who + " to " + f.to + " with " + strings.ToUpper(p.Protocol)
			if i == 1 {
				who += " (replies)"
			}
			r.add(step, w, who).link = true
			lost = true
		}
	}
	return lost
}

// losesAll returns the packets of Pods that a chain certainly drops.
func losesAll(c *path.LinkChain, opts *Options) (who string, all bool) {
	if !c.Surely {
		return "", false
	}
	if c.ARP {
		return "of ARP", true
	}
	if !c.AtLinks() {
		return "that pass bridges", path.HasBridge(opts.Links)
	}
	how := "that come in by "
	if c.Step.Hook == "EGRESS" {
		how = "that leave by "
	}
	for _, d := range c.Devices {
		if d == opts.Uplink || path.IsOfAllPods(d) {
			return how + d, true
		}
	}
	return "", false
}

// describeLinkChain returns the place of a chain and how it may drop packets.
func describeLinkChain(c *path.LinkChain) string {
	at := strings.ToLower(c.Step.Hook)
	if c.ARP {
		at += " of ARP"
	} else if !c.AtLinks() {
		at += " of bridges"
	} else if len(c.Devices) > 0 { // nft before 1.0.7 does not print them as JSON
		at += " of " + strings.Join(c.Devices, ", ")
	}
	how := c.Step.Rule
	if how == "" {
		how = c.Step.Does
	}
	if strings.Contains(how, "?") { // read over netlink, and not known
		how = fmt.Sprintf("rule with handle %d", c.Step.Handle)
	}
	if how != "" {
		how = " (" + how + ")"
	}
	return fmt.Sprintf("chain %s of table %s, at hook %s, may drop packets%s", c.Step.Chain, c.Step.Table, at, how)
}
