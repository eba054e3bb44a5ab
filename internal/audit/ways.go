package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"nodegate/internal/audit/proxy"
	"nodegate/internal/audit/replay"
	"nodegate/internal/host"
	"nodegate/internal/host/replica"
	"nodegate/internal/ruleset"
	"nodegate/internal/verdict"
)

// Ways is what packets showed in a replica of the node.
type (
	Ways = replay.Answer
	Flow = replay.Result
	Loss = replay.Loss
)

// Destinations of packets: Flow.Kind.
const (
	ToOutside = replay.ToOutside
	ToKubelet = replay.ToKubelet
	ToOverlay = replay.ToOverlay
	ToPage    = replay.ToPage

	ByPolicy = replica.PartPolicy // Loss.Kind
)

// Packets reads a question about this node, and writes the answer: the command host.PacketsCommand. With captured
// it builds the replica in a user namespace, from a capture that its parent made.
func Packets(ctx context.Context, captured bool, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, replay.Longest)
	defer cancel()
	if captured {
		return replay.Build(ctx, in, out)
	}
	return replay.Main(ctx, in, out, host.BuildPackets)
}

// AskWays sends packets of Pods, of the node and of other machines through a replica of the node.
func AskWays(ctx context.Context, h *host.Host, rep *Judgment) (Ways, error) {
	return ask(ctx, h, question(rep))
}

// AskFrom sends packets from one sender to each address of a Service: a Pod's address or another one, pod, node or outside. The name is
// ns/name or ns/name:port.
func AskFrom(ctx context.Context, h *host.Host, rep *Judgment, service, from string) (Ways, error) {
	if _, err := netip.ParseAddr(from); err != nil && !slices.Contains([]string{replay.FromPod, replay.FromNode, replay.FromOutside}, from) {
		return Ways{}, fmt.Errorf("--from must be an address, pod, node, outside or a Pod's NAMESPACE/NAME; %q is none of these (without the "+
			"API, give the address that `kubectl get pod -o wide` prints)", from)
	}
	q := replay.Question{Sender: from}
	for i := range rep.Services {
		s := &rep.Services[i]
		if ns, name, _ := SplitServicePort(s.Name); s.Name == service || ns+"/"+name == service {
			addService(&q, s, rep.Mode == "nftables")
		}
	}
	return ask(ctx, h, q)
}

// rest is the shortest time between two replicas of one node in watch.
const rest = time.Minute

// recalled is what packets last showed in watch.
type recalled struct {
	mu    sync.Mutex
	ways  Ways
	err   error
	tried time.Time
}

// ask asks a question by packets. In watch it does so at most once a minute, and sends none if other programs have changed nothing since no
// packet was lost.
func ask(ctx context.Context, h *host.Host, q replay.Question) (Ways, error) {
	if h.Memory == nil {
		return askNode(ctx, h, q)
	}
	kept, _ := h.Memory.Packets.LoadOrStore(q.Cluster.Page, &recalled{})
	last := kept.(*recalled)
	last.mu.Lock()
	defer last.mu.Unlock()
	if time.Since(last.tried) < rest {
		return last.ways, last.err
	}
	if len(last.ways.Losses) == 0 {
		q.Unless = last.ways.Fingerprint
	}
	a, err := askNode(ctx, h, q)
	if last.err, last.tried = err, time.Now(); err != nil || !a.Unchanged {
		last.ways = a
	}
	return last.ways, err
}

func askNode(ctx context.Context, h *host.Host, q replay.Question) (a Ways, err error) {
	in, err := json.Marshal(q)
	if err != nil {
		return a, err
	}
	out, err := h.Rules.Packets(ctx, in)
	if err != nil {
		return a, fmt.Errorf("sending packets through a copy of the node: %w", err)
	}
	if err := json.Unmarshal(out, &a); err != nil {
		return a, fmt.Errorf("reading what packets showed in a copy of the node: %w", err)
	}
	return a, a.Err()
}

// question returns the question about the Services of the rules.
func question(rep *Judgment) (q replay.Question) {
	const most = 8 // of each family stand for all
	usual := []func(*Service) bool{
		func(s *Service) bool { return s.Name == "default/kubernetes:https" },
		func(s *Service) bool { return s.Port == 53 },
		func(s *Service) bool { return s.ExternalLocal },
		func(s *Service) bool { return len(s.LoadBalancerIPs)+len(s.ExternalIPs) > 0 },
		func(s *Service) bool { return s.NodePort > 0 },
	}
	for range most {
		usual = append(usual, func(*Service) bool { return true })
	}
	for _, family := range []string{ruleset.IPv4, ruleset.IPv6} {
		picked := map[int]bool{}
		for _, is := range usual {
			i := slices.IndexFunc(rep.Services, func(s Service) bool {
				return s.Family == family && len(s.Endpoints) > 0 && s.Protocol != "sctp" && s.Verdict != verdict.Fail && is(&s)
			})
			for i >= 0 && picked[i] {
				next := slices.IndexFunc(rep.Services[i+1:], func(s Service) bool {
					return s.Family == family && len(s.Endpoints) > 0 && s.Protocol != "sctp" && s.Verdict != verdict.Fail && is(&s)
				})
				if i += next + 1; next < 0 {
					i = -1
				}
			}
			if i >= 0 && len(picked) < most {
				picked[i] = true
				addService(&q, &rep.Services[i], rep.Mode == "nftables")
			}
		}
	}
	return q
}

func addService(q *replay.Question, s *Service, nft bool) {
	one := replay.Service{Name: s.Name, Protocol: unix.IPPROTO_TCP, Port: uint16(s.NodePort)}
	if s.Protocol == "udp" {
		one.Protocol = unix.IPPROTO_UDP
	}
	add := func(list *[]netip.AddrPort, address string, port int) {
		if ip, err := netip.ParseAddr(address); err == nil && port > 0 {
			*list = append(*list, netip.AddrPortFrom(ip, uint16(port)))
		}
	}
	endpoints := func(of []Endpoint) (list []netip.AddrPort) {
		for _, e := range of {
			if at, err := netip.ParseAddrPort(e.Address); err == nil {
				list = append(list, at)
			}
		}
		return list
	}
	if one.Endpoints = endpoints(s.Endpoints); len(one.Endpoints) == 0 {
		return
	}
	add(&one.Addresses, s.ClusterIP, s.Port)
	if s.InternalLocal {
		one.Addresses = nil // only Pods of nodes with an endpoint may ask
	}
	for _, ip := range s.ExternalIPs {
		add(&one.External, ip, s.Port)
	}
	for _, ip := range s.LoadBalancerIPs {
		if len(s.SourceRanges) == 0 {
			add(&one.External, ip, s.Port)
		}
	}
	if s.ExternalLocal {
		if one.Here = endpoints(s.LocalEndpoints); len(one.Here) == 0 {
			one.External, one.Port = nil, 0
		}
	}
	if strings.HasPrefix(s.Name, "default/kubernetes:") {
		q.Cluster.Servers = append(q.Cluster.Servers, one.Endpoints...)
	}
	for _, chain := range s.Chains {
		if key := replica.ServicePort(map[bool]string{true: ruleset.KubeProxyTable}[nft], chain); key != "" && !slices.Contains(q.Keys, key) {
			q.Keys = append(q.Keys, key)
		}
	}
	q.Cluster.Services = append(q.Cluster.Services, one)
}

// judgeWays adds what packets showed, unless kube-proxy's rules themselves explain why they are lost.
func (n *Machine) judgeWays(ctx context.Context, rep *Judgment) {
	if len(rep.Services) == 0 || rep.Mode != "iptables" && rep.Mode != "nftables" || slices.ContainsFunc(rep.Findings, explainsLosses) {
		return
	}
	ways, err := ask(ctx, n.Host, question(rep))
	if err != nil {
		rep.Notes = append(rep.Notes, untried(err))
	}
	found, notes := FindLosses(&ways)
	rep.Findings, rep.Notes = append(rep.Findings, found...), append(rep.Notes, notes...)
}

// untried returns the note that no packets were sent.
func untried(err error) string {
	if errors.Is(err, host.ErrNotRecorded) {
		err = errors.New("the snapshot has no answer of packets")
	}
	return fmt.Sprintf("other programs' rules and routes were not tried: %v", err)
}

// losesPage describes what may lose the audit's own query to a page of kube-proxy.
func (n *Machine) losesPage(ctx context.Context, page netip.AddrPort) (does, remedy string, lost bool) {
	a, err := ask(ctx, n.Host, replay.Question{Cluster: replay.Cluster{Page: page}})
	if err != nil {
		return "", "", false
	}
	for i := range a.Losses {
		l := &a.Losses[i]
		if l.Kind != "" && slices.ContainsFunc(l.Flows, func(f Flow) bool { return f.Kind == replay.ToPage && f.Lost > 0 }) {
			return Describe(l), Remedy(l, l.Flows), true
		}
	}
	return "", "", false
}

// explainsLosses reports whether a finding explains why packets to all Services are lost.
func explainsLosses(f Finding) bool {
	return f.Name == "kubeproxy.jump.missing" || f.Name == "kubeproxy.nft.base-chain" || strings.HasPrefix(f.Name, "kubeproxy.table.")
}

// FindLosses returns findings about the rules, routes and routing rules of other programs that lose packets.
func FindLosses(a *Ways) (found []Finding, notes []string) {
	for i := range a.Losses {
		l := a.Losses[i]
		l.Flows = slices.DeleteFunc(slices.Clone(l.Flows), func(f Flow) bool {
			strange := !f.Node && !f.Pod
			return f.Kind == replay.ToPage || l.Kind == "" && strange && f.Kind == replay.ToService // kube-proxy may serve other addresses
		})
		lost := slices.DeleteFunc(slices.Clone(l.Flows), func(f Flow) bool { return f.Lost == 0 || f.Doubt != "" })
		if f, is := findLoss(&l, lost); is && IsFault(&l, lost) {
			found = append(found, f)
			continue
		}
		for _, f := range l.Flows {
			switch {
			case l.Policy:
			case f.Doubt != "":
				notes = append(notes, fmt.Sprintf("packets from %s may be lost: %s", f.Name, f.Doubt))
			case l.Taken:
				notes = append(notes, fmt.Sprintf("packets from %s are taken by a program of this node: %s", f.Name, Describe(&l)))
			case l.Own || len(lost) > 0:
				notes = append(notes, fmt.Sprintf("packets from %s are lost by %s", f.Name, Describe(&l)))
			case f.Link != "":
				notes = append(notes, fmt.Sprintf("packets from %s leave by %s: %s", f.Name, f.Link, Describe(&l)))
			}
		}
	}
	for _, what := range a.Refused {
		notes = append(notes, "not tried with packets: "+what)
	}
	return found, notes
}

// IsFault reports whether lost packets are a fault: not if a NetworkPolicy, kube-proxy or a program of this node may want it so.
func IsFault(l *Loss, lost []Flow) bool {
	return !l.Policy && !l.Own && !l.Taken && !namesOutside(l, lost)
}

// namesOutside reports whether a rule picks machines outside the cluster by their addresses, or leads to a proxy. Which of them it loses
// may be meant so.
func namesOutside(l *Loss, lost []Flow) bool {
	outside := !slices.ContainsFunc(lost, func(f Flow) bool { return f.Kind != replay.ToOutside && (f.Node || f.Pod) })
	return outside && regexp.MustCompile(`--match-set|@| -m geoip |REDIRECT|TPROXY|redirect to|tproxy`).MatchString(l.Rule)
}

// findLoss returns the finding about one cause.
func findLoss(l *Loss, lost []Flow) (f Finding, is bool) {
	if len(lost) == 0 {
		return f, false
	}
	f = Finding{Name: "kubeproxy.way.forward", Table: l.Table, Chain: l.Chain, Handle: int(l.Handle), Rule: l.Rule, Remedy: Remedy(l, lost)}
	if l.Kind != replica.PartRule && l.Kind != replica.PartPolicy {
		f.Table, f.Chain = "", ""
	} else if !l.Legacy && l.Family != ruleset.IPv4 && l.Family != ruleset.IPv6 {
		f.Table = l.Family + " " + l.Table
	}
	sent, gone, strange, node := 0, 0, true, true
	for _, r := range lost {
		sent, gone = sent+r.Sent, gone+r.Lost
		strange = strange && !r.Node && !r.Pod
		node = node && (r.Kind == replay.ToKubelet || r.Kind == replay.ToOverlay)
		if r.Kind == replay.ToService {
			f.Name = "kubeproxy.way.service"
		}
		if f.Family = ruleset.IPv4; r.To.Addr().Is6() {
			f.Family = ruleset.IPv6
		}
	}
	if f.Name == "kubeproxy.way.service" && oneService(lost) {
		f.Service = lost[0].Service
	}
	if node || f.Name == "kubeproxy.way.service" && strange || gone*2 < sent {
		f.Verdict = verdict.Warn // closed on purpose, or a rule that loses few
	}
	some := ""
	if gone < sent {
		some = "some "
	}
	f.Message = fmt.Sprintf("%spackets %s: %s", some, describeFlows(lost), Describe(l))
	if l.Kind == "" || !l.Cured {
		f.Message += ": " + lost[0].Why
	}
	return proxy.NewFinding(f), true
}

func oneService(lost []Flow) bool {
	return !slices.ContainsFunc(lost, func(r Flow) bool { return r.Service != lost[0].Service })
}

// describeFlows returns who lacks an answer of whom: "from Pods and the node to Services (a, b) and machines outside".
func describeFlows(lost []Flow) string {
	var from, to, services []string
	add := func(list *[]string, what string) {
		if !slices.Contains(*list, what) {
			*list = append(*list, what)
		}
	}
	for _, r := range lost {
		switch {
		case r.Pod:
			add(&from, "Pods")
		case r.Node:
			add(&from, "this node")
		default:
			add(&from, "other machines")
		}
		switch r.Kind {
		case replay.ToService:
			add(&services, r.Service)
		case replay.ToEndpoint:
			add(&to, "endpoints of Services")
		case replay.ToOutside:
			add(&to, "machines outside the cluster")
		default:
			add(&to, "the "+r.Kind)
		}
	}
	if len(services) > 0 {
		more := ""
		if len(services) > 3 {
			services, more = services[:3], ", ..."
		}
		to = append([]string{"Services (" + strings.Join(services, ", ") + more + ")"}, to...)
	}
	return "from " + strings.Join(from, " and ") + " to " + strings.Join(to, ", ")
}
