package proxy

import (
	"nodegate/internal/audit/path"
	"nodegate/internal/ruleset"
)

// judgeForwarding judges the packets of Pods and of the node to other machines.
func (r *reach) judgeForwarding() {
	for _, from := range r.senders() {
		for _, loss := range r.losses(from.packet) {
			if who, is := r.loses(&from, &loss); is {
				r.add(loss.Step, loss.Way, who).forwarding = true
			}
		}
	}
}

// losses returns the rules that drop packets to other machines, whatever the link, or by the uplink.
func (r *reach) losses(p path.Packet) (list []path.Loss) {
	if p.Source.IsValid() {
		p.NotTo = r.pods
	}
	for _, p.Out = range r.uplinks() {
		list = append(list, r.rules.Losses(p)...)
	}
	return list
}

// uplinks returns the uplinks to judge: an unknown one, and the one that is known.
func (r *reach) uplinks() []string {
	if r.uplink == "" || r.family != ruleset.IPv4 { // the default route may be of IPv4 only
		return []string{""}
	}
	return []string{"", r.uplink}
}

// loses reports whether a loss is a fault, and describes the packets. A policy may drop if another program
// forwards the packets, and a rule that another finding is about is not a second fault.
func (r *reach) loses(s *sender, loss *path.Loss) (who string, is bool) {
	step := &loss.Step
	if step.Rule == "" && r.bypassed || r.isExplained(step) || path.EnforcesPolicies(step.Owner()) {
		return "", false
	}
	if loss.Way.Open != nil {
		r.addOpen(s.who, loss)
		return "", false
	}
	if who = s.who; loss.Protocol != "" {
		who += " with " + loss.Protocol
	}
	return who, true
}
