package proxy

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	"nodegate/internal/audit/path"
	"nodegate/internal/ruleset"
	"nodegate/internal/verdict"
)

// Trace is the way of a new packet to one address of a Service.
type Trace struct {
	Service  string          `json:"service"`  // ns/name[:port]
	Protocol string          `json:"protocol"` // tcp, udp or sctp
	Family   string          `json:"family"`   // "ip" or "ip6"
	From     string          `json:"from"`     // the sender: an address, a range, "the node", "other machines"
	To       string          `json:"to"`       // address and port
	Verdict  verdict.Verdict `json:"verdict"`  // pass if every way leads to an endpoint, fail if one surely does not
	Steps    []TraceStep     `json:"steps"`    // the rules that decide for all ways
	Ways     []TraceWay      `json:"ways"`     // each with its end

	NotFollowed []string `json:"notFollowed,omitempty"` // chains at hooks of links and bridges that may drop the packets
}

// TraceStep is a rule that decides something on the way.
type TraceStep struct {
	Hook   string `json:"hook"`             // PREROUTING, INPUT, FORWARD, OUTPUT or POSTROUTING
	Table  string `json:"table"`            // of nftables with its family: "inet filter"
	Chain  string `json:"chain"`            // the rule's chain
	Line   int    `json:"line,omitempty"`   // of the rule in the output of iptables-save
	Handle int    `json:"handle,omitempty"` // nftables: handle as `nft -a` prints it
	Does   string `json:"does"`             // its target or verdict
	Rule   string `json:"rule,omitempty"`   // absent for the policy of a chain
	Unsure string `json:"unsure,omitempty"` // a condition that the rules and known facts do not decide
}

// TraceWay is one way, or several that differ only in their endpoint.
type TraceWay struct {
	End        string      `json:"end"`                 // forwarded, delivered, dropped, rejected, unknown
	To         []string    `json:"to"`                  // the destinations at the end
	Chance     float64     `json:"chance"`              // of each destination, for a new connection
	Sure       bool        `json:"sure"`                // false if a condition is not known: the chance is then only a share
	Translated bool        `json:"translated"`          // kube-proxy's rules have chosen an endpoint
	Masquerade bool        `json:"masquerade"`          // the source became an address of this node
	Untracked  bool        `json:"untracked,omitempty"` // conntrack does not see the packet
	Steps      []TraceStep `json:"steps"`               // after those of all ways, for the first destination
	astray     bool        // whether the reply comes back is not known
	Reply      string      `json:"reply,omitempty"`     // the reply's way back
	ReplyLost  bool        `json:"replyLost,omitempty"` // a rule certainly drops the reply
}

// Senders of a trace other than addresses.
const (
	FromPod     = "pod"
	FromNode    = "node"
	FromOutside = "outside"
)

// Traces returns the ways of new packets to a Service, one for each port, family and address that the
// sender uses. The name is ns/name or ns/name:port; from is an address, pod, node or outside.
func Traces(rep *Judgment, sets []*ruleset.Set, opts *Options, name, from string) ([]Trace, error) {
	sender, err := netip.ParseAddr(from)
	if err != nil && !slices.Contains([]string{FromPod, FromNode, FromOutside}, from) {
		return nil, fmt.Errorf("--from must be an address, pod, node, outside or a Pod's NAMESPACE/NAME; %q is none of these (without the API, "+
			"give the address that `kubectl get pod -o wide` prints)", from)
	}
	var list []Trace
	for _, family := range []string{ruleset.IPv4, ruleset.IPv6} {
		if err == nil && familyOf(sender) != family {
			continue
		}
		r := newReach(rep, sets, opts, family)
		r.findServed(sets)
		node := r.node
		node.Own = r.ownOrPod(r.own)
		r.rules = r.rules.For(node)
		node.Elsewhere = notOfContainers
		r.back = r.rules.For(node)
		for _, c := range r.rules.LinkChains() {
			r.aside = append(r.aside, describeLinkChain(&c))
		}
		for _, set := range sets {
			if set.Unread != nil {
				r.aside = append(r.aside, set.Unread.Error())
			}
		}
		for i := range rep.Services {
			s := &rep.Services[i]
			ns, svc, _ := SplitServicePort(s.Name)
			if s.Family == family && (s.Name == name || ns+"/"+svc == name) {
				list = append(list, r.trace(s, from, sender)...)
			}
		}
	}
	return list, nil
}

// findServed finds an address at which nftables mode serves node ports.
func (r *reach) findServed(sets []*ruleset.Set) {
	for _, set := range sets {
		for _, t := range set.NFT {
			if served := t.Sets["nodeport-ips"]; t.Family == r.family && served != nil && len(served.Elements) > 0 {
				r.served = served.Elements[0].String()
			}
		}
	}
}

// notOfContainers: a reply may come in by a link of Pods or by an uplink.
func notOfContainers(pattern string, _ bool) bool { return path.NotOfReplies(pattern, false) }

// ownOrPod answers that addresses of Pods do not belong to the node.
func (r *reach) ownOrPod(own func(netip.Addr) path.Answer) func(netip.Addr) path.Answer {
	return func(a netip.Addr) path.Answer {
		if r.pods.IsValid() && r.pods.Contains(a) {
			return path.No
		}
		return own(a)
	}
}

// trace returns the ways to each address of a Service that the sender uses.
func (r *reach) trace(s *Service, from string, sender netip.Addr) (list []Trace) {
	p := path.Packet{State: path.StateNew, Protocol: s.Protocol}
	shown := from
	switch from {
	case FromNode:
		p.Own, shown = true, "the node"
	case FromOutside:
		p.NotFrom, shown = r.pods, "other machines"
	case FromPod:
		if p.Source, p.In, shown = r.pods, r.link, "a Pod"; r.pods.IsValid() {
			shown += " in " + r.pods.String()
		}
	default:
		if p.Source = path.Addr(sender); sender.IsLoopback() || r.own(sender) == path.Yes {
			p.Own, shown = true, from+", an address of the node"
		} else {
			p.In = r.linkTo(sender)
		}
	}
	add := func(address, text string, port int, toNode path.Answer) {
		p := p
		if ip, err := netip.ParseAddr(address); err == nil {
			p.Destination = path.Addr(ip)
		}
		p.Port, p.ToNode = uint16(port), toNode
		list = append(list, r.traceOne(s, p, shown, fmt.Sprintf("%s:%d", text, port)))
	}
	if from != FromOutside && s.ClusterIP != "" {
		ip, _ := netip.ParseAddr(s.ClusterIP)
		add(s.ClusterIP, strings.TrimSuffix(netip.AddrPortFrom(ip, 0).String(), ":0"), s.Port, path.Unknown)
	}
	if from == FromOutside {
		for _, ip := range slices.Concat(s.ExternalIPs, s.LoadBalancerIPs) {
			add(ip, ip, s.Port, path.Unknown)
		}
		if s.NodePort != 0 {
			add(r.served, "node port", s.NodePort, path.Yes)
		}
	}
	return list
}

// linkTo returns the link by which packets of a sender come in: the one by which the node reaches it.
func (r *reach) linkTo(sender netip.Addr) string {
	if r.opts.Lookup != nil {
		return r.opts.Lookup(&path.Packet{Own: true, Destination: path.Addr(sender)}).Link
	}
	return r.routes.Link(sender)
}

func (r *reach) traceOne(s *Service, p path.Packet, from, to string) Trace {
	t := Trace{Service: s.Name, Protocol: s.Protocol, Family: s.Family, From: from, To: to, Steps: []TraceStep{}, Ways: []TraceWay{}}
	ways := r.rules.Walk(p, "", nil)
	common := commonSteps(ways)
	for i := 0; i < common; i++ {
		t.Steps = append(t.Steps, traceStep(ways[0].Steps[i]))
	}
	for _, w := range ways {
		one := r.traceWay(p, &w)
		if i := slices.IndexFunc(t.Ways, one.isLike); i >= 0 {
			t.Ways[i].To = append(t.Ways[i].To, one.To...)
			continue
		}
		for _, step := range w.Steps[common:] {
			one.Steps = append(one.Steps, traceStep(step))
		}
		t.Ways = append(t.Ways, one)
	}
	for i := range t.Ways {
		slices.Sort(t.Ways[i].To)
		t.Ways[i].To = slices.Compact(t.Ways[i].To)
	}
	t.Verdict = judgeWays(t.Ways)
	t.NotFollowed = r.aside
	if len(t.NotFollowed) > 0 {
		t.Verdict = verdict.Worse(t.Verdict, verdict.Unknown)
	}
	return t
}

// judgeWays: packets that rules drop or leave untranslated are a fault, unless the Service has no endpoints, which REJECT says.
func judgeWays(ways []TraceWay) verdict.Verdict {
	worst := verdict.Pass
	arrives := false
	for _, w := range ways {
		arrives = arrives || w.End == "unknown" || w.Translated && !w.ReplyLost && (w.End == "forwarded" || w.End == "delivered")
	}
	for _, w := range ways {
		switch ok := w.Translated && !w.ReplyLost && (w.End == "forwarded" || w.End == "delivered"); {
		case ok && w.astray:
			worst = verdict.Unknown
		case ok:
		case w.Sure, !arrives:
			return verdict.Fail
		default:
			worst = verdict.Unknown
		}
	}
	return worst
}

func commonSteps(ways []path.Way) int {
	if len(ways) == 0 {
		return 0
	}
	n := len(ways[0].Steps)
	for _, w := range ways[1:] {
		n = min(n, len(w.Steps))
		for i := range n {
			if traceStep(w.Steps[i]) != traceStep(ways[0].Steps[i]) {
				n = i
				break
			}
		}
	}
	return n
}

func traceStep(s path.Step) TraceStep {
	return TraceStep{Hook: s.Hook, Table: s.Table, Chain: s.Chain, Line: s.Line, Handle: s.Handle, Does: s.Does, Rule: s.Rule,
		Unsure: s.Unsure}
}

func (r *reach) traceWay(sent path.Packet, w *path.Way) TraceWay {
	p := w.Packet
	to := "?"
	if p.Destination.IsValid() && p.Destination.IsSingleIP() {
		to = netip.AddrPortFrom(p.Destination.Addr(), p.Port).String()
	} else if p.ToNode == path.Yes {
		to = fmt.Sprintf("this node:%d", p.Port)
	}
	one := TraceWay{End: w.End.String(), To: []string{to}, Chance: w.Chance, Sure: w.Sure, Translated: p.Translated() && byProxy(w.Steps),
		Masquerade: p.Masqueraded(), Untracked: p.State == path.StateUntracked, Steps: []TraceStep{}}
	if one.Translated && (w.End == path.Forwarded || w.End == path.Delivered) {
		one.Reply = "comes back to this node, where conntrack restores both addresses"
		if !one.Masquerade {
			one.Reply = "goes to the client's own address; conntrack restores the Service's address if the reply passes this node's IP hooks: " +
				"on a bridge that client and endpoint share, only with net.bridge.bridge-nf-call-iptables=1"
		}
	}
	if source := p.Source; one.Reply != "" && one.Masquerade && source.IsSingleIP() && r.own(source.Addr()) == path.No {
		one.Reply = fmt.Sprintf("goes to %s, an address that this node lacks: it comes back only if it is routed through this node",
			source.Addr())
		one.astray = true
	}
	if step, lost := r.replyLost(sent, w); lost && step.Effect == path.Untracks {
		one.Reply = fmt.Sprintf("keeps the endpoint's address, which the client does not know: %s %s %s excludes it from conntrack",
			step.Hook, step.Table, step.Chain)
		one.ReplyLost = true
	} else if lost && one.Reply != "" {
		one.Reply = fmt.Sprintf("is dropped: %s %s %s", step.Hook, step.Table, step.Chain)
		if step.Line > 0 {
			one.Reply += fmt.Sprintf(" line %d", step.Line)
		} else if step.Handle > 0 {
			one.Reply += fmt.Sprintf(" handle %d", step.Handle)
		}
		one.Reply += ": " + step.Does
		one.ReplyLost = true
	}
	return one
}

// replyLost returns the rule that certainly drops the reply to a packet, or excludes it from conntrack, which then does
// not restore the addresses.
func (r *reach) replyLost(sent path.Packet, w *path.Way) (path.Step, bool) {
	if w.End != path.Forwarded && w.End != path.Delivered {
		return path.Step{}, false
	}
	ways := r.back.Reply(sent, w)
	if step, _, lost := path.DropsSurely(ways); lost || !w.Packet.Translated() {
		return step, lost
	}
	return untracksSurely(ways)
}

// byProxy reports whether kube-proxy's rules made the last change of the destination.
func byProxy(steps []path.Step) bool {
	for _, s := range slices.Backward(steps) {
		if s.Effect == path.Changes {
			return strings.HasPrefix(s.Chain, "KUBE-SEP-") || strings.HasSuffix(s.Table, " "+ruleset.KubeProxyTable)
		}
	}
	return false
}

// isLike reports whether two ways differ only in their endpoint.
func (w TraceWay) isLike(o TraceWay) bool {
	return w.End == o.End && math.Abs(w.Chance-o.Chance) < 1e-6 && w.Sure == o.Sure && w.Translated == o.Translated &&
		w.Masquerade == o.Masquerade && w.Untracked == o.Untracked && w.ReplyLost == o.ReplyLost && w.astray == o.astray
}
