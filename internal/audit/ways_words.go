package audit

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"nodegate/internal/audit/replay"
	"nodegate/internal/host/replica"
)

// Describe returns the cause of a loss and where it is.
func Describe(l *Loss) string {
	where := ""
	switch l.Kind {
	case "":
		if toHostPorts(l) {
			return "no rule that they meet leads them to the Pod that has this hostPort"
		}
		return "no rule, route or routing rule alone is the cause, so the copy may lack something that the node has"
	case replica.PartSysctl:
		where = l.Rule
	case replica.PartRoute, replica.PartRoutingRule:
		where = fmt.Sprintf("the %s `%s`", l.Kind, l.Rule)
		if l.Rule == "" {
			which := map[bool]string{true: l.Chain, false: fmt.Sprint(l.Position)}[l.Kind == replica.PartRoute]
			where = fmt.Sprintf("the %s %s of table %s", l.Kind, which, routes(l.Table))
		}
	case replica.PartNextHop:
		where = fmt.Sprintf("the next hop %s on %s, which does not answer (`%s`),", l.Chain, l.Table, l.Rule)
	case replica.PartFilter, replica.PartIPsec:
		where = fmt.Sprintf("`%s %s` (%s)", l.Kind, l.Chain, l.Table)
	case replica.PartPolicy:
		where = fmt.Sprintf("the policy DROP of chain %s of table %s", l.Chain, table(l))
	default:
		where = fmt.Sprintf("rule %d of chain %s of table %s", l.Position, l.Chain, table(l))
	}
	if owner := owner(l); owner != "" {
		where += " (" + owner + ")"
	}
	if l.Kind == replica.PartRule && l.Rule != "" {
		where += ", `" + l.Rule + "`,"
	}
	return where + " loses them"
}

// ofHostPorts is the remedy for ports that lead to no Pod, or to another one.
const ofHostPorts = "look at `iptables-save -t nat | grep CNI-` or, if portmap writes for nft, `nft list table ip cni_hostport`: if the " +
	"Pod's rules are gone (`firewall-cmd --reload` removes them), delete the Pod, and portmap writes those of the next one; if another " +
	"Pod's take the port, give one another hostPort; if that Pod is gone, delete them"

func toHostPorts(l *Loss) bool {
	return !slices.ContainsFunc(l.Flows, func(f Flow) bool { return f.Kind != replay.ToHostPort })
}

func table(l *Loss) string {
	if l.Legacy || Program(l) != "nft" {
		return l.Table + " (" + Program(l) + ")"
	}
	return l.Family + " " + l.Table
}

// routes returns a table of routes as ip prints it (rt_tables of iproute2).
func routes(table string) string {
	return cmp.Or(map[string]string{"253": "default", "254": "main", "255": "local"}[table], table)
}

// owner returns another program. Its rule may be in a chain of kube-proxy or kubelet, or in one with a name like theirs.
func owner(l *Loss) string {
	if l.Owner == "kube-proxy or kubelet" {
		return ""
	}
	return l.Owner
}

// Program returns the program that changes a rule: iptables-nft, ip6tables-legacy, nft.
func Program(l *Loss) string {
	name := "iptables"
	if l.Family == "ip6" {
		name = "ip6tables"
	}
	switch {
	case l.Legacy:
		return name + "-legacy"
	case strings.HasPrefix(l.Rule, "-A ") || l.Kind == replica.PartPolicy && slices.Contains([]string{"ip", "ip6"}, l.Family) &&
		strings.ToUpper(l.Chain) == l.Chain:
		return name + "-nft"
	}
	return "nft"
}

// Remedy returns the command that lets the lost packets pass.
func Remedy(l *Loss, lost []Flow) string {
	find := "find the program that adds it"
	if owner := owner(l); owner != "" {
		find = "change the configuration of " + owner + ", or it adds it again"
	}
	program := Program(l)
	switch l.Kind {
	case "":
		if toHostPorts(l) {
			return ofHostPorts
		}
		return "look at what `ip rule`, `ip route show table all` and `nft list ruleset` have for these addresses; `nodegate probe service " +
			"HOST:PORT` sends real packets"
	case replica.PartSysctl:
		return fmt.Sprintf("run `sysctl -w %s=%s`; `nodegate check` names the file or the program that sets it", l.Table, l.Chain)
	case replica.PartRoutingRule:
		if l.Table == "0" { // it refuses by itself
			return "look at `ip rule`: " + find
		}
		return fmt.Sprintf("look at `ip rule` and `ip route show table %s`: %s", routes(l.Table), find)
	case replica.PartNextHop:
		return "look whether that machine is up and forwards these packets: `ip route show table all` names the route to it"
	case replica.PartRoute:
		return fmt.Sprintf("look at `ip route show table %s`: %s", routes(l.Table), find)
	case replica.PartFilter, replica.PartIPsec:
		return fmt.Sprintf("run `%s del %s`; %s", l.Kind, l.Chain, find)
	case replica.PartPolicy:
		return remedyOfPolicy(l, program)
	}
	if set := set(l, program); set != "" {
		return "remove the element that holds these addresses, not the rule: " + set + "; " + find
	}
	if accept := accept(l, program, lost); accept != "" {
		return "accept these packets before the rule: " + accept + "; " + find
	}
	rest, is := strings.CutPrefix(l.Rule, "-A ")
	switch {
	case !is && program == "nft":
		return fmt.Sprintf("remove the rule: `nft delete rule %s %s %s handle %d`; %s", l.Family, l.Table, l.Chain, l.Handle, find)
	case !is || !canPaste(rest):
		return fmt.Sprintf("remove the rule by its number: `%s -t %s -D %s %d`; %s", program, l.Table, l.Chain, l.Position, find)
	}
	return fmt.Sprintf("remove the rule: `%s -t %s -D %s`; %s", program, l.Table, rest, find)
}

// accept returns the command that accepts the packets before a rule of table filter which drops all that comes to it, or "".
func accept(l *Loss, program string, lost []Flow) string {
	drops := regexp.MustCompile(`-j (DROP|REJECT)\b|\b(drop|reject)\b`).MatchString(l.Rule)
	picks := regexp.MustCompile(` -s | -d | -p (ipv6-)?icmp|l4proto (ipv6-)?icmp|untracked|--dport|--sport|--match-set|saddr|daddr|` +
		`dport|sport|@`).MatchString(l.Rule)
	if !drops || picks || l.Family == "arp" || l.Table != "filter" && program != "nft" || strings.HasPrefix(l.Chain, "KUBE-") {
		return ""
	}
	r := lost[0]
	host := r.To.Addr().String()
	original, to := "", fmt.Sprintf("-d %s --dport %d", host, r.To.Port())
	if r.Kind == replay.ToService { // kube-proxy has translated the address
		original, to = "ct original ", fmt.Sprintf("-m conntrack --ctorigdst %s --ctorigdstport %d", host, r.To.Port())
	}
	if program == "nft" {
		return fmt.Sprintf("`nft insert rule %s %s %s handle %d %s%s daddr %s accept`, and so on for the others", l.Family, l.Table, l.Chain,
			l.Handle, original, map[bool]string{true: "ip6", false: "ip"}[r.To.Addr().Is6()], host)
	}
	return fmt.Sprintf("`%s -I %s %d -p %s %s -j ACCEPT`, and so on for the others", program, l.Chain, l.Position,
		replay.Protocol(r.Protocol), to)
}

// set returns the commands that show the set whose elements the rule loses, and remove one; "" if the rule has no set, or a negated one.
func set(l *Loss, program string) string {
	if m := regexp.MustCompile(`(!)? ?--match-set ([A-Za-z0-9_.:-]+) `).FindStringSubmatch(l.Rule); m != nil && m[1] == "" {
		return fmt.Sprintf("`ipset list %s` shows all, `ipset del %[1]s ELEMENT` removes one", m[2])
	}
	named := regexp.MustCompile(`(!=)? (map |vmap )?@([A-Za-z0-9_.-]+)`)
	if m := named.FindStringSubmatch(l.Rule); m != nil && m[1] == "" && program == "nft" {
		kind := map[bool]string{true: "set", false: "map"}[m[2] == ""]
		return fmt.Sprintf("`nft list %s %s %s %s` shows all, `nft delete element %[2]s %[3]s %[4]s { ELEMENT }` removes one", kind, l.Family,
			l.Table, m[3])
	}
	return ""
}

// remedyOfPolicy returns the command that lets a chain pass the packets that its rules do not accept.
func remedyOfPolicy(l *Loss, program string) string {
	if program == "nft" {
		return fmt.Sprintf("accept these packets: add a rule for the Pods' links to chain %s of table %s %s, or run "+
			"`nft 'chain %[2]s %[3]s %[1]s { policy accept; }'`; find the program that loads the table", l.Chain, l.Family, l.Table)
	}
	if routed := map[string]string{"INPUT": "incoming", "OUTPUT": "outgoing"}[l.Chain]; routed != "" {
		return fmt.Sprintf("with ufw run `ufw default allow %s`; otherwise run `%s -t %s -P %s ACCEPT`, and find the program that sets "+
			"the policy", routed, program, l.Table, l.Chain)
	}
	return fmt.Sprintf("with ufw run `ufw default allow routed`; after Docker set net.ipv4.ip_forward=1 before it starts, and run "+
		"`%s -t %s -P %s ACCEPT`; otherwise restart the CNI plugin's agent, which inserts its ACCEPT, and find the program "+
		"that sets the policy", program, l.Table, l.Chain)
}

// canPaste reports whether a shell takes a rule literally: another program chose its comment.
func canPaste(rule string) bool {
	return regexp.MustCompile("^(?:[A-Za-z0-9_./:,+=@% -]|! |\"[^\"$`\\\\!]*\")*$").MatchString(rule)
}
