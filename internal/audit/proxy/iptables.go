package proxy

import (
	"fmt"
	"slices"
	"strings"

	"nodegate/internal/audit/compare"
	"nodegate/internal/audit/expect"
	"nodegate/internal/audit/model"
	"nodegate/internal/ruleset"
)

// audit judges one save of iptables mode: the rules give a model of the Services, the model gives the rules that kube-proxy writes for it,
// and what differs is a finding. The rules are shared and must not change.
type audit struct {
	opts    *Options
	out     *Collector
	save    *ruleset.Save
	nat     *ruleset.Table // nil if missing or flushed; so are the next two
	filter  *ruleset.Table
	mangle  *ruleset.Table
	version VersionRange
	model   *model.Model

	nodePorts bool            // node ports are served at some address
	unjudged  bool            // the form is not known, or names or addresses were replaced
	emptied   map[int32]bool  // shared chains without any rule, by Index
	lost      map[int32]int   // how many Services lack rules in a chain without any
	broken    map[string]bool // Services with a finding
}

func newAudit(s *ruleset.Save, opts *Options, out *Collector) *audit {
	return &audit{opts: opts, out: out, save: s, nat: s.Table("nat"), filter: s.Table("filter"), mangle: s.Table("mangle"),
		emptied: map[int32]bool{}, lost: map[int32]int{}, broken: map[string]bool{}}
}

// judge judges the save. It returns notes, and false if it could not judge.
func (a *audit) judge() (notes []string, judged bool) {
	if !a.judgeTables() {
		return nil, false
	}
	services := !a.opts.WithoutServices
	a.model = model.FromRules(a.save, a.nat, a.filter, services)
	post := a.nat.Chain("KUBE-POSTROUTING")
	old := a.isOld()
	doubles := post != nil && a.judgeOldPostrouting(post)
	if old {
		return nil, a.leaveOut("filter", nil, "a kube-proxy before 1.25 wrote these rules, which were not judged", "upgrade kube-proxy")
	}
	a.version = a.versions()
	a.judgeCanary()
	a.judgeRootJumps()
	a.judgeFirewall()
	if at, why := a.redactedRule(); at != nil {
		return nil, a.leaveOut("", at, why+": names or addresses were replaced, so the rules of Services were not judged",
			"audit the text as it is on the node: nodegate sends it nowhere")
	}
	parts := a.sharedParts(doubles)
	if services {
		a.judgeTwice()
		a.judgeNodePorts()
	}
	list, unknown := compare.Diff(a.model, parts)
	for _, d := range list {
		if d.Own && d.Empty {
			a.lost[d.Chain.Index]++
		}
	}
	for i := range list {
		a.report(&list[i])
	}
	if a.model.FirstUnread != nil {
		r := a.model.FirstUnread
		a.add("kubeproxy.rule.unreadable", "nat", nil, r,
			"iptables-save could not print the destination of %d endpoints: the host's iptables is older than the one that wrote the rules",
			a.model.Unreadable)
	}
	if services {
		a.judgeUnreferenced()
	}
	if len(unknown) > 0 {
		notes = []string{fmt.Sprintf("kube-proxy up to 1.%d does not write rules of this form: %s (and %d more): a newer release may, so "+
			"rules that are missing were judged only if most chains have them", newestMinor, unknown[0], len(unknown)-1)}
	}
	return notes, true
}

// leaveOut reports why the save is not judged.
func (a *audit) leaveOut(table string, at *ruleset.Rule, why, remedy string) (judged bool) {
	f := Finding{Name: partial, Family: a.save.Family, Table: table, Message: why, Remedy: remedy}
	if at != nil {
		f.Line, f.Rule = int(at.Line), at.Text
	}
	a.out.Add(f)
	a.unjudged = true
	return false
}

// add adds a finding about a rule or, if r is nil, about a chain.
func (a *audit) add(name, table string, c *ruleset.Chain, r *ruleset.Rule, format string, args ...any) *Finding {
	f := Finding{Name: name, Family: a.save.Family, Table: table, Message: fmt.Sprintf(format, args...)}
	if c != nil {
		f.Chain, f.Line = c.Name, int(c.Line)
	}
	if r != nil {
		f.Chain, f.Line, f.Rule = a.model.Chains[r.Chain].Name, int(r.Line), r.Text
	}
	before := len(a.out.List)
	if a.out.Add(f); len(a.out.List) == before {
		return &f // too many of its kind
	}
	return &a.out.List[before]
}

// sharedParts returns the chains that Services share and whose rules do not depend on Services. It reports faults other than damaged rules.
func (a *audit) sharedParts(doubles bool) (parts []compare.Part) {
	if mark, post := a.nat.Chain("KUBE-MARK-MASQ"), a.nat.Chain("KUBE-POSTROUTING"); a.nat != nil {
		for name, other := range map[string]*ruleset.Chain{"KUBE-MARK-MASQ": post, "KUBE-POSTROUTING": mark} {
			if c := a.nat.Chain(name); c == nil && other != nil {
				a.add(damaged, "nat", nil, nil, "table nat has no chain %s", name).Chain = name
			}
		}
		if mark != nil {
			parts = append(parts, compare.Part{Chain: mark, Write: func(s *expect.Sheet) { s.Masquerading(a.model, mark.Name, false) }})
		}
		if post != nil && !doubles {
			random := a.judgeRandomFully(post)
			parts = append(parts, compare.Part{Chain: post, Write: func(s *expect.Sheet) { s.Masquerading(a.model, post.Name, random) }})
		}
	}
	c := a.filter.Chain("KUBE-FORWARD")
	if c == nil {
		return parts
	}
	drop, _ := InvalidDrop(a.filter)
	if drop == nil && len(c.Rules) <= 2 {
		a.judgeNoDrop(c)
	}
	return append(parts, compare.Part{Chain: c, Write: func(s *expect.Sheet) { s.Forward(a.model, drop != nil) }})
}

// judgeOldPostrouting judges the form before 1.16.13, 1.17.9 and 1.18.6, which masquerades a tunnelled packet again with a random port:
// kubernetes#92035. It returns false for a later form.
func (a *audit) judgeOldPostrouting(c *ruleset.Chain) bool {
	if len(c.Rules) != 1 || c.Rules[0].Target != "MASQUERADE" || !c.Rules[0].Has(ruleset.ByMark|ruleset.RandomFully) {
		return false
	}
	a.add("kubeproxy.masquerade.double-snat", "nat", c, &c.Rules[0],
		"the mark stays on the packet: after VXLAN encapsulation it is masqueraded again with a random port, "+
			"which breaks the checksum on kernels without the fix (delays of 1, 3 and 63 s)")
	return true
}

// judgeRandomFully reports a masquerade without random ports, and returns whether it has them.
func (a *audit) judgeRandomFully(c *ruleset.Chain) bool {
	for i := range c.Rules {
		if r := &c.Rules[i]; r.Target == "MASQUERADE" && !r.Has(ruleset.RandomFully) {
			if r.Always() {
				a.add("kubeproxy.masquerade.random-fully", "nat", c, r,
					"MASQUERADE without --random-fully: two connections may get the same source port, and one of them waits a second or more")
			}
			return false
		}
	}
	return true
}

// judgeTwice reports a second rule for an address: the first one matches every packet.
func (a *audit) judgeTwice() {
	type place struct{ chain, address, proto, port string }
	seen := map[place]*ruleset.Rule{}
	for _, name := range []string{"KUBE-SERVICES", "KUBE-NODEPORTS"} {
		for r := range a.nat.Rules(name) {
			p := a.model.Chains[r.Jump].Port
			if p == nil || !r.Has(ruleset.ByPort) {
				continue
			}
			key := place{name, r.Destination, r.Protocol, r.Port}
			first := seen[key]
			if first == nil {
				seen[key] = r
			} else if first.Target != r.Target && r.Conditions() == first.Conditions() && !a.broken[p.Name] && a.model.Chains[first.Jump].Port != p {
				a.broken[p.Name] = true
				a.add("kubeproxy.service.duplicate", "nat", nil, r, "line %d already handles %s %s %s for %s",
					first.Line, r.Destination, r.Protocol, r.Port, first.Target).Service = p.Name
			}
		}
	}
}

// judgeNodePorts judges the rules that lead to node ports: they come last, and match this node's own addresses, listed or all.
func (a *audit) judgeNodePorts() {
	c, ports := a.nat.Chain("KUBE-SERVICES"), a.nat.Chain("KUBE-NODEPORTS")
	if c == nil || len(c.Rules) == 0 { // the comparison reports that it is empty
		return
	}
	jumps := 0
	for _, r := range a.model.NodePortJumps {
		switch kinds := r.Conditions(); {
		case ports == nil || r.Jump != ports.Index: // no rule leads there, which is reported below
		case kinds == ruleset.ByDestination && !r.Has(ruleset.NotDestination), kinds&^ruleset.ByDestination == ruleset.ToLocal:
			jumps++
			a.nodePorts = true
		default:
			jumps++
			a.add(damaged, "nat", c, r, "the rule must match exactly the addresses of this node").Means =
				"node ports are not served at exactly the addresses of this node"
		}
	}
	if jumps > 0 {
		first := slices.IndexFunc(c.Rules, func(r ruleset.Rule) bool { return r.Jump == ports.Index })
		if i := slices.IndexFunc(c.Rules[first:], func(r ruleset.Rule) bool { return a.model.Chains[r.Jump].Port != nil }); i > 0 {
			a.add(damaged, "nat", c, &c.Rules[first],
				"rules for Services follow the jump to KUBE-NODEPORTS: node port rules may match their packets").Means = explain(damaged, c.Name)
		}
		return
	}
	if ports == nil || len(ports.Rules) == 0 || a.opts.NodePortAddresses == nil || *a.opts.NodePortAddresses {
		return // this node may have none of the configured addresses
	}
	a.add(damaged, "nat", c, nil, "KUBE-SERVICES has no jump to KUBE-NODEPORTS: no node port is served").Means = explain(damaged, ports.Name)
}

// judgeUnreferenced reports unused chains of Services. Outside of large-cluster mode, kube-proxy deletes them when it writes its rules.
func (a *audit) judgeUnreferenced() {
	if a.nat == nil || a.model.Large {
		return
	}
	if c := a.nat.Chain("KUBE-SERVICES"); c != nil && a.emptied[c.Index] {
		return
	}
	for _, c := range a.nat.Chains {
		at := &a.model.Chains[c.Index]
		if at.Kind == "" || !c.Declared() || c.Refs > 0 || at.Kind == "EXT" && a.opts.NoExternalIPs {
			continue
		}
		service := ""
		if at.Port != nil {
			service = at.Port.Name
		} else if at.Kind == "SEP" && len(c.Rules) > 0 {
			service = c.Rules[0].Comment
		}
		if !a.broken[service] {
			a.add("kubeproxy.chain.unreferenced", "nat", c, nil, "no rule of table nat jumps to %s", c.Name).Service = service
		}
	}
}

// services returns the Service graph for the report.
func (a *audit) services() []Service {
	m := a.model
	slices.SortFunc(m.Ports, func(x, y *model.Port) int { // cheaper here than later, when the elements are large
		if x.Name != y.Name {
			return strings.Compare(x.Name, y.Name)
		}
		return strings.Compare(x.Protocol, y.Protocol)
	})
	list := make([]Service, 0, len(m.Ports))
	for _, p := range m.Ports {
		if len(p.Lines) > 0 {
			list = append(list, p.Service)
		}
	}
	return list
}
