package proxy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"nodegate/internal/audit/path"
	"nodegate/internal/verdict"
)

// report makes one finding of each rule.
func (r *reach) report() {
	for _, key := range r.order {
		t := r.found[key]
		t.owners = r.owners
		slices.Sort(t.services)
		f := Finding{Name: "kubeproxy.way.service", Family: r.family, Table: t.step.Table, Chain: t.step.Chain, Line: t.step.Line,
			Handle: t.step.Handle, Rule: t.step.Rule, Remedy: t.remedy()}
		which := Count(len(t.services), "Service port")
		switch {
		case len(t.services) == 1:
			f.Service, which = t.services[0], "this Service"
		case len(t.services) > 1:
			which += " (" + strings.Join(t.services[:min(len(t.services), 3)], ", ")
			if len(t.services) > 3 {
				which += ", ..."
			}
			which += ")"
		}
		if t.some {
			which = "some endpoints of " + which
		}
		if t.step.Effect == path.Drops && slices.Equal(t.who, []string{toNodePorts}) || t.outside {
			f.Verdict = verdict.Warn // an operator may have closed them
		}
		share := ""
		if c := t.way.Chance; c < 0.999 {
			share = path.Percent(c) + " of "
			if c < 0.5 {
				f.Verdict = verdict.Warn // a test of lost packets, or a rule that thins them out
			}
		}
		if t.forwarding {
			f.Name, f.Service = "kubeproxy.way.forward", ""
			which = "other machines"
		}
		if t.endpoints {
			if f.Name, f.Service, which = "kubeproxy.way.forward", "", "endpoints of Services"; t.here {
				which += " on this node"
			}
		}
		if t.step.Effect == path.Sources {
			f.Name, f.Remedy = "kubeproxy.way.source", "unless another program routes this address to the node, "+f.Remedy
		}
		if t.masquerade {
			if f.Name, which = "kubeproxy.way.masquerade", "other machines"; t.minor {
				f.Name, which = "kubeproxy.way.hairpin", "KUBE-POSTROUTING"
			}
		}
		switch {
		case t.link:
			f.Name, f.Message = "kubeproxy.way.link", fmt.Sprintf("packets %s: %s", strings.Join(t.who, ", "), t.describe())
		case t.flow && !t.masquerade:
			if t.step.Effect != path.Sources {
				f.Name = "kubeproxy.way.forward"
			}
			what := map[bool]string{false: "packets ", true: "replies to packets "}[t.replies]
			f.Message, f.Service = share+what+strings.Join(t.who, ", "), ""
			if len(t.services) > 0 {
				f.Message += " (such as " + t.services[0] + ")"
			}
			f.Message += ": " + t.describe()
		case t.replies:
			f.Name, f.Service = "kubeproxy.way.forward", ""
			f.Message = fmt.Sprintf("%sreplies %s: %s", share, strings.Join(t.who, ", "), t.describe())
		default:
			f.Message = fmt.Sprintf("%spackets %s to %s: %s", share, strings.Join(t.who, ", "), which, t.describe())
		}
		r.addOnce(f)
	}
}

// addOnce adds a finding, unless the other family has one about the same rule of a table that both share, such as inet's.
func (r *reach) addOnce(f Finding) {
	f = NewFinding(f)
	for i := range r.out.List {
		g := &r.out.List[i]
		if strings.Contains(f.Table, " ") && g.Table == f.Table && g.Chain == f.Chain && g.Handle == f.Handle && g.Family != f.Family {
			g.Verdict = verdict.Worse(g.Verdict, f.Verdict)
			if !strings.HasPrefix(f.Table, "arp ") && !strings.HasSuffix(g.Message, bothFamilies) {
				g.Message += bothFamilies
			}
			return
		}
	}
	r.out.Add(f)
}

const bothFamilies = "; the same rule meets packets of IPv6"

// Count returns "1 thing" or "2 things".
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// describe returns the rule's effect on the packets.
func (t *taken) describe() string {
	if t.step.Hook == path.Routing {
		return fmt.Sprintf("the routing rules and routes have no way for them (%s: %s)", t.step.Rule, t.step.Does)
	}
	where := fmt.Sprintf("chain %s of table %s", t.step.Chain, t.step.Table)
	if owner := t.owner(); owner != "" {
		where += " (" + owner + ")"
	}
	if t.step.Handle > 0 {
		where += fmt.Sprintf(", handle %d", t.step.Handle)
	} else if t.step.Line > 0 {
		where += fmt.Sprintf(", line %d", t.step.Line)
	}
	does := "ends the way of the packets before kube-proxy's rules (" + t.step.Does + ")"
	if strings.HasPrefix(t.step.Does, path.InZone) {
		does = "puts one direction into a zone of conntrack of its own (" + t.step.Does + "): replies are not translated back"
	}
	switch t.step.Effect {
	case path.Drops:
		does = "loses them (" + t.step.Does + ")"
	case path.Changes:
		does = "sends them elsewhere (" + t.step.Does + ")"
	case path.Sources:
		does = fmt.Sprintf("gives them the source %s, which is not an address of this node: replies come back only if another program "+
			"routes them here (%s)", t.way.Packet.Source.Addr(), t.step.Does)
	case path.Marks:
		does = "takes the mark that kube-proxy's rules gave them (" + t.step.Does + "): they leave with the client's address, and replies " +
			"bypass this node"
	case path.Untracks:
		does = "excludes them from conntrack, so that kube-proxy's rules do not translate them (" + t.step.Does + ")"
		if t.replies {
			does = "excludes them from conntrack, which then does not restore the address of the Service (" + t.step.Does + ")"
		}
	}
	return where + " " + does
}

// remedy returns the command that removes the rule.
func (t *taken) remedy() string {
	find := "find the program that adds it"
	if owner := t.owner(); owner != "" {
		find = "change the configuration of " + owner + ", or it adds the rule again"
	}
	if t.step.Hook == path.Routing {
		return "look at `ip rule` and the tables that it names: " + find + "; `" + t.step.Rule + "` repeats the kernel's lookup"
	}
	if t.step.Rule == "" {
		return t.remedyOfPolicy()
	}
	if set := t.set(); set != "" {
		return "remove the element that holds these addresses, not the rule: " + set + "; " + find
	}
	if rest, is := strings.CutPrefix(t.step.Rule, "-A "); is && !canPaste(rest) {
		return fmt.Sprintf("remove the rule by its number, which `%s -t %s -vnL %s --line-numbers` prints; %s",
			t.step.Program, t.step.Table, t.step.Chain, find)
	} else if is {
		return fmt.Sprintf("remove the rule: `%s -t %s -D %s`; %s", t.step.Program, t.step.Table, rest, find)
	}
	return fmt.Sprintf("remove the rule: `nft delete rule %s %s handle %d`; %s", t.step.Table, t.step.Chain, t.step.Handle, find)
}

// set returns the commands that show the set whose elements the rule loses, and remove one; "" if the rule has no set, or a negated one.
func (t *taken) set() string {
	if m := regexp.MustCompile(`(!)? ?--match-set ([A-Za-z0-9_.:-]+) `).FindStringSubmatch(t.step.Rule); m != nil && m[1] == "" {
		return fmt.Sprintf("`ipset list %s` shows all, `ipset del %[1]s ELEMENT` removes one", m[2])
	}
	if m := regexp.MustCompile(`(!=)? @([A-Za-z0-9_.-]+)`).FindStringSubmatch(t.step.Rule); m != nil && m[1] == "" && t.step.Program == "nft" {
		kind := "set"
		if strings.Contains(t.step.Rule, "map @"+m[2]) {
			kind = "map"
		}
		return fmt.Sprintf("`nft list %s %s %s` shows all, `nft delete element %[2]s %[3]s { ELEMENT }` removes one", kind, t.step.Table, m[2])
	}
	return ""
}

// remedyOfPolicy returns the command that lets a chain pass what its rules do not accept.
func (t *taken) remedyOfPolicy() string {
	if t.step.Program == "nft" {
		return fmt.Sprintf("accept these packets: add a rule for the Pods' links to chain %s of table %s, or run "+
			"`nft 'chain %s %s { policy accept; }'`; find the program that loads the table", t.step.Chain, t.step.Table, t.step.Table, t.step.Chain)
	}
	command := fmt.Sprintf("`%s -t %s -P %s ACCEPT`", t.step.Program, t.step.Table, t.step.Chain)
	switch {
	case slices.Contains(t.owners, "ufw") && t.step.Chain == "FORWARD":
		return "run `ufw default allow routed`"
	case slices.Contains(t.owners, "ufw"):
		return "accept these packets in ufw: `ufw allow from` the Pods' addresses"
	case slices.Contains(t.owners, "Docker") && t.step.Chain == "FORWARD":
		return "run " + command + ", and set net.ipv4.ip_forward=1 before Docker starts, or it sets the policy again"
	}
	return "restart the CNI plugin's agent, which inserts its ACCEPT, or run " + command + "; find the program that sets the policy"
}

// canPaste reports whether a shell takes a rule literally: another program chose its comment.
func canPaste(rule string) bool {
	return regexp.MustCompile("^(?:[A-Za-z0-9_./:,+=@% -]|! |\"[^\"$`\\\\!]*\")*$").MatchString(rule)
}
