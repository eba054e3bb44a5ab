package proxy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"nodegate/internal/audit/path"
	"nodegate/internal/ruleset"
)

// reach judges whether packets reach kube-proxy's rules. The other judges compare these rules with
// kube-proxy's own; a rule of another program can take the packets before them.
type reach struct {
	rep      *Judgment
	out      *Collector
	family   string
	rules    *path.Rules
	back     *path.Rules  // for replies, in a trace
	pods     netip.Prefix // their range, as far as kube-proxy's rules show it
	local    path.Route   // to the Pods of this node, if they all share one link
	routes   *path.Routes
	uplink   string
	link     string   // their link, if kube-proxy's rules name one
	links    []string // links of Pods that rules of other programs name
	own      func(netip.Addr) path.Answer
	node     path.Node
	opts     *Options
	open     []string // keys of open
	notes    map[string]*undecided
	classes  func() *path.Classes
	owners   []string // programs whose chains are among the rules
	bypassed bool     // packets of Pods may pass the policy of FORWARD: see mayBypass
	served   string   // an address of node ports, if only some addresses have them
	found    map[string]*taken
	order    []string
	aside    []string // in a trace: what it does not follow
}

// taken collects the packets that one rule takes.
type taken struct {
	step       path.Step
	way        path.Way
	who        []string // the senders
	services   []string
	forwarding bool // to other machines
	endpoints  bool // to the endpoints of Services
	here       bool // on this node only
	some       bool // to some endpoints of a Service only
	replies    bool // of connections that exist
	minor      bool // few packets
	masquerade bool // to kube-proxy's chain that masquerades
	link       bool // at a hook of links or bridges
	flow       bool // of the connections that judgeFlows follows
	outside    bool // only packets of other machines, which an operator may keep out
	owners     []string
}

// judgeReach judges every family with Services in use.
func judgeReach(rep *Judgment, sets []*ruleset.Set, opts *Options, out *Collector) {
	if rep.Mode != "iptables" && rep.Mode != "nftables" {
		return
	}
	for _, family := range []string{ruleset.IPv4, ruleset.IPv6} {
		explained := slices.ContainsFunc(out.List, func(f Finding) bool {
			return f.Family == family && (f.Name == "kubeproxy.jump.missing" || f.Name == "kubeproxy.nft.base-chain" ||
				strings.HasPrefix(f.Name, "kubeproxy.table."))
		})
		used := slices.ContainsFunc(rep.Services, func(s Service) bool { return s.Family == family && len(s.Endpoints) > 0 })
		if explained || !used {
			continue
		}
		r := newReach(rep, sets, opts, family)
		r.out = out
		r.rules.AddServices(r.serviceRange())
		r.judgeServices()
		r.judgeForwarding()
		r.judgeEndpoints()
		if opts.Own != nil {
			r.judgeOwnEndpoints()
		}
		r.judgeReplies()
		r.judgeUntracked()
		r.judgeMarked(sets)
		r.judgeLinks(opts)
		r.judgeFlows()
		r.noteUnreached(sets)
		r.noteSinglePods()
		r.report()
		r.reportOpen()
	}
}

func newReach(rep *Judgment, sets []*ruleset.Set, opts *Options, family string) *reach {
	r := &reach{rep: rep, family: family, found: map[string]*taken{}, routes: path.NewRoutes(opts.Routes), uplink: opts.Uplink, opts: opts,
		notes: map[string]*undecided{}}
	r.findPods(sets, opts)
	r.owners = path.Owners(sets, family)
	r.bypassed = mayBypass(sets, r.owners)
	if r.own = opts.Own; r.own == nil {
		r.own = r.ownByRules(sets)
	}
	r.classes = sync.OnceValue(func() *path.Classes { return path.NewClasses(sets, family, r.own) })
	r.node = path.Node{Own: r.own, Route: r.routes.Link, Elsewhere: path.NotOfPods, Lookup: opts.Lookup, IPsec: opts.IPsec,
		Listens: opts.Listens}
	r.rules = path.New(sets, family, r.node)
	return r
}

// writes reports whether kube-proxy writes rules of a family.
func writes(sets []*ruleset.Set, family string) bool {
	for _, t := range ruleset.Tables(sets, "nat") {
		if t.Family == family && t.Declares("KUBE-SERVICES") && t.Chain("KUBE-NODE-PORT") == nil { // not IPVS mode
			return true
		}
	}
	return slices.ContainsFunc(sets, func(set *ruleset.Set) bool {
		return slices.ContainsFunc(set.NFT, func(t *ruleset.NFTTable) bool { return t.Family == family })
	})
}

// reachesSurely reports whether no rule can take packets before kube-proxy's rules, whatever their destination.
func (r *reach) reachesSurely() bool {
	for _, from := range r.senders() {
		p, hook := from.packet, path.Prerouting
		if p.Own {
			hook = path.Output
		}
		if len(r.losses(p)) > 0 || r.rules.MayLoseTranslated(p) || !p.Own && slices.ContainsFunc(r.rules.Delivered(p), isDropped) {
			return false
		}
		p.ToNode = path.No
		if !reachesSurely(r.rules.Walk(p, hook, toProxy)) {
			return false
		}
		uplink := path.Packet{NotFrom: r.pods, UnnamedFrom: true, In: r.uplinkIn(), ToNode: path.No}
		for _, p := range []path.Packet{p, uplink} {
			for _, p.State = range []string{path.StateNew, path.StateEstablished} {
				p.Mark.Unknown = ^uint32(0)
				if slices.ContainsFunc(r.rules.Forwarded(p), r.mayLose) {
					return false
				}
			}
		}
	}
	replies := r.rules.Walk(path.Packet{State: path.StateEstablished, ToNode: path.No}, path.Prerouting, nil)
	return reachesSurely(r.rules.Walk(path.Packet{State: path.StateNew, ToNode: path.Yes}, path.Prerouting, toProxy)) &&
		!slices.ContainsFunc(replies, isUntracked)
}

// mayLose reports whether a rule may drop a packet, and would be a finding.
func (r *reach) mayLose(w path.Way) bool {
	if !isDropped(w) || len(w.Steps) == 0 || w.Open != nil && w.Rare {
		return false
	}
	last := w.Steps[len(w.Steps)-1]
	return !strings.HasPrefix(last.Chain, "KUBE-") && !path.EnforcesPolicies(last.Owner())
}

func isDropped(w path.Way) bool { return w.End == path.Dropped || w.End == path.Rejected }

// findPods finds the addresses and links of Pods in the rules and routes.
func (r *reach) findPods(sets []*ruleset.Set, opts *Options) {
	for i := range r.rep.Services {
		s := &r.rep.Services[i]
		pods := podRange(s.Masquerade)
		if s.Family != r.family || pods == "" {
			continue
		}
		if p, err := netip.ParsePrefix(pods); err == nil {
			r.pods = p
		} else {
			r.link = pods
		}
		break
	}
	if !r.pods.IsValid() && r.link == "" {
		r.pods = path.PodRange(sets, r.family)
	}
	r.links = path.PodLinks(sets, r.family, opts.Links)
	var local []path.Route
	for _, one := range opts.PodRoutes {
		if familyOf(one.To.Addr()) == r.family {
			local = append(local, one)
		}
	}
	if len(local) == 1 && (!r.pods.IsValid() || r.isOfPods(local[0].To)) {
		r.local = local[0]
	}
}

// ownByRules answers whether an address belongs to the node, if only the rules are known. A Service
// address does not, except NodeLocal DNSCache's: it excludes the address from conntrack.
func (r *reach) ownByRules(sets []*ruleset.Set) func(netip.Addr) path.Answer {
	perhaps := map[string]bool{}
	for _, t := range ruleset.Tables(sets, "raw") {
		for _, hook := range []string{"PREROUTING", "OUTPUT"} {
			for rule := range t.Rules(hook) {
				if address, single := strings.CutSuffix(rule.Destination, "/32"); single {
					perhaps[address] = true
				} else if address, single := strings.CutSuffix(rule.Destination, "/128"); single {
					perhaps[address] = true
				}
			}
		}
	}
	services := map[string]bool{}
	for i := range r.rep.Services {
		services[r.rep.Services[i].ClusterIP] = true
	}
	return func(a netip.Addr) path.Answer {
		if text := a.String(); services[text] && !perhaps[text] {
			return path.No
		}
		return path.Unknown
	}
}

// toProxy stops a walk at kube-proxy's first chain for Services.
func toProxy(table, chain string) path.Visit {
	if table == "nat" && chain == "KUBE-SERVICES" || table == ruleset.KubeProxyTable && strings.HasPrefix(chain, "nat-") {
		return path.Stop
	}
	return path.Follow
}

// sender is a class of packets by their origin.
type sender struct {
	who    string
	packet path.Packet
}

// senders returns the classes that the rules may treat differently.
func (r *reach) senders() []sender {
	pods := path.Packet{Source: r.pods, In: r.link, State: path.StateNew}
	if r.local.To.IsValid() {
		pods.Source, pods.In = r.local.To, r.local.Link
	}
	list := []sender{{"from Pods", pods}}
	for _, in := range r.links {
		if in == pods.In {
			continue
		}
		p := path.Packet{In: in, State: path.StateNew}
		if len(r.links) == 1 { // of several, one may be a leftover: only the other has Pods in this range
			p.Source = r.pods
		}
		list = append(list, sender{"that come in by " + in, p})
	}
	return append(list, sender{"from the node", path.Packet{Own: true, State: path.StateNew}})
}

// judgeServices judges the packets to Service addresses. If no rule before kube-proxy's chain looks
// at the destination, one walk covers all Services.
func (r *reach) judgeServices() {
	for _, from := range r.senders() {
		hook := path.Prerouting
		if from.packet.Own {
			hook = path.Output
		}
		every := from.packet
		every.ToNode = path.No
		if ways := r.rules.Walk(every, hook, toProxy); reachesSurely(ways) {
			continue
		}
		walked := map[path.Class][]path.Way{}
		for i := range r.rep.Services {
			s := &r.rep.Services[i]
			ip, err := netip.ParseAddr(s.ClusterIP)
			if s.Family != r.family || err != nil || len(s.Endpoints) == 0 {
				continue
			}
			class := r.classes().Of(ip, s.Protocol, uint16(s.Port))
			ways, known := walked[class]
			if !known {
				p := from.packet
				p.Destination, p.Protocol, p.Port = path.Addr(ip), s.Protocol, uint16(s.Port)
				ways = r.rules.Walk(p, hook, toProxy)
				walked[class] = ways
			}
			r.judge(from.who, s, ways)
		}
	}
	r.judgeNodePorts()
}

const toNodePorts = "from other machines to node ports"

// judgeNodePorts judges the packets from other machines to node ports.
func (r *reach) judgeNodePorts() {
	outside := path.Packet{State: path.StateNew, ToNode: path.Yes}
	if reachesSurely(r.rules.Walk(outside, path.Prerouting, toProxy)) {
		return
	}
	walked := map[path.Class][]path.Way{}
	for i := range r.rep.Services {
		s := &r.rep.Services[i]
		if s.Family != r.family || s.NodePort == 0 || len(s.Endpoints)+len(s.LocalEndpoints) == 0 {
			continue
		}
		class := r.classes().Of(netip.Addr{}, s.Protocol, uint16(s.NodePort))
		ways, known := walked[class]
		if !known {
			p := outside
			p.Protocol, p.Port = s.Protocol, uint16(s.NodePort)
			ways = r.rules.Walk(p, path.Prerouting, toProxy)
			walked[class] = ways
		}
		r.judge(toNodePorts, s, ways)
	}
}

// reachesSurely reports whether every way reaches kube-proxy's chain.
func reachesSurely(ways []path.Way) bool {
	return !slices.ContainsFunc(ways, func(w path.Way) bool { return w.End != path.Reached })
}

// judge records a rule that takes packets to a Service: if no way reaches kube-proxy's chain, or
// one that no unknown match leads to ends elsewhere. A way whose end is not known may reach it.
func (r *reach) judge(who string, s *Service, ways []path.Way) {
	reached := slices.ContainsFunc(ways, func(w path.Way) bool { return w.End == path.Reached || w.End == path.Lost })
	for _, w := range ways {
		if w.End == path.Reached || w.End == path.Lost || reached && !w.Sure {
			continue
		}
		if w.Packet.State == path.StateUntracked && w.Packet.ToNode != path.No && s.NodePort != int(w.Packet.Port) {
			continue // NodeLocal DNSCache answers at the address of the Service
		}
		step, ok := decider(w)
		if !ok || step.Unsure != "" {
			continue // kube-proxy's own jump is missing: judgeRootJumps
		}
		if owner := step.Owner(); owner == "Cilium" || step.Effect == path.Drops && path.EnforcesPolicies(owner) {
			continue // Cilium translates the packets of Pods by eBPF; kube-proxy's rules may be left over
		}
		if !reached {
			w.Chance = 1
		}
		t := r.add(step, w, who)
		if name := s.Name; !slices.Contains(t.services, name) {
			t.services = append(t.services, name)
		}
		return
	}
	if step, w, may := path.MayDrop(ways); may {
		r.loses(&sender{who: who + " to Services"}, &path.Loss{Step: step, Way: w})
	}
}

func (r *reach) add(step path.Step, w path.Way, who string) *taken {
	key := stepKey(step)
	t := r.found[key]
	if t == nil {
		t = &taken{step: step, way: w}
		r.found[key] = t
		r.order = append(r.order, key)
	}
	if t.way.Chance < w.Chance {
		t.way = w
	}
	if !slices.Contains(t.who, who) {
		t.who = append(t.who, who)
	}
	return t
}

// stepKey returns a key of the cause: all losses by routing rules are one.
func stepKey(step path.Step) string {
	if step.Hook == path.Routing {
		return step.Hook
	}
	return fmt.Sprint(step.Source, step.Table, step.Chain, step.Line, step.Handle, step.Rule)
}

// decider returns the step that keeps a packet from kube-proxy's chain.
func decider(w path.Way) (path.Step, bool) {
	for i := len(w.Steps) - 1; i >= 0; i-- {
		s := w.Steps[i]
		switch {
		case s.Effect == path.Drops:
			return s, true
		case w.End == path.Dropped || w.End == path.Rejected:
			continue
		case s.Effect == path.Untracks, s.Effect == path.Changes:
			return s, true
		case w.Packet.State == path.StateUntracked || w.Packet.Translated():
			continue
		case (s.Table == "nat" || s.Program == "nft") && (s.Effect == path.Accepts || s.Effect == path.Returns):
			return s, true
		}
	}
	return path.Step{}, false
}
