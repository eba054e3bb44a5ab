package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

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
	Flow = replay.Outcome
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

// Packets reads a question about this node, and writes the answer: the command host.PacketsCommand. In a user namespace it does only the
// part of it that its parent leaves to it: to build the replica from a capture ("build"), or to rehearse a command there ("rehearse").
func Packets(ctx context.Context, part string, in io.Reader, out io.Writer) error {
	if strings.HasPrefix(part, "rehearse") {
		return rehearse(ctx, part != "rehearse", in, out)
	}
	ctx, cancel := context.WithTimeout(ctx, replay.Longest)
	defer cancel()
	if part == "build" {
		return replay.Build(ctx, in, out)
	}
	return replay.Main(ctx, in, out, host.BuildPackets)
}

// judgeWays adds what packets showed, unless kube-proxy's rules themselves explain why they are lost.
func (n *Machine) judgeWays(ctx context.Context, rep *Judgment) {
	if len(rep.Services) == 0 || rep.Mode != "iptables" && rep.Mode != "nftables" || slices.ContainsFunc(rep.Findings, explainsLosses) {
		return
	}
	if end, bounded := ctx.Deadline(); bounded { // kube-proxy's rules are judged without packets too, and its pages come after them
		var done context.CancelFunc
		ctx, done = context.WithDeadline(ctx, end.Add(-time.Until(end)/3))
		defer done()
	}
	ways, err := ask(ctx, n.Host, question(rep))
	if err == nil && ways.Skipped != "" {
		err = errors.New(ways.Skipped)
	}
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

// losesPage describes what may lose the audit's own query to a page of kube-proxy, also if that is not known. If a program listens there,
// several rules may lose it, and none alone is the cause.
func (n *Machine) losesPage(ctx context.Context, page netip.AddrPort, listens bool) (does, remedy string, lost bool) {
	a, err := ask(ctx, n.Host, replay.Question{Cluster: replay.Cluster{Page: page}})
	if err != nil {
		return untried(err), "", ctx.Err() != nil
	}
	for i := range a.Losses {
		l := &a.Losses[i]
		if (l.Kind != "" || listens) && slices.ContainsFunc(l.Flows, func(f Flow) bool { return f.Kind == replay.ToPage && f.Lost > 0 }) {
			return Describe(l), Remedy(l, l.Flows), true
		}
	}
	return "", "", false
}

// explainsLosses reports whether a finding explains why packets to all Services are lost.
func explainsLosses(f Finding) bool {
	return f.Name == "kubeproxy.backend.mixed" || f.Name == "kubeproxy.jump.missing" || f.Name == "kubeproxy.nft.base-chain" ||
		strings.HasPrefix(f.Name, "kubeproxy.table.")
}

// noteLosses returns what a cause does to packets that are no fault: each effect with the first connection and the number of others.
func noteLosses(l *Loss, lost bool) (notes []string) {
	first, more := map[string]string{}, map[string]int{}
	var all []string
	for _, f := range l.Flows {
		does := ""
		switch {
		case l.Policy:
		case f.Doubt != "":
			does = "may be lost: " + f.Doubt
			if l.Kind != "" {
				does += ": " + strings.TrimRight(strings.TrimSuffix(Describe(l), " loses them"), ",")
			}
		case l.Taken:
			does = "are taken by a program of this node: " + Describe(l)
		case l.Own || lost:
			does = "are lost: " + Describe(l)
		case f.Link != "":
			does = "leave by " + f.Link + ": " + Describe(l)
		}
		if does == "" {
			continue
		}
		if more[does]++; more[does] == 1 {
			first[does], all = f.Name, append(all, does)
		}
	}
	for _, does := range all {
		others := ""
		if n := more[does] - 1; n > 0 {
			others = fmt.Sprintf(" (and %d more connections)", n)
		}
		notes = append(notes, "packets from "+first[does]+others+" "+does)
	}
	return notes
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
		notes = append(notes, noteLosses(&l, len(lost) > 0)...)
	}
	for _, what := range a.Stray {
		remedy := "`networkctl status` or NetworkManager's log names the program that changed the link: exclude the CNI's links from it; the " +
			"CNI's plugin sets the link right when the next Pod starts on this node"
		if strings.Contains(what, "passthru") {
			remedy = "put the macvlan into mode bridge, or on a link of its own; libvirt calls it `<source mode='passthrough'>`"
		}
		found = append(found, proxy.NewFinding(Finding{Name: "kubeproxy.way.forward", Message: "packets of Pods are lost: " + what,
			Remedy: remedy}))
	}
	for _, what := range a.Misled {
		found = append(found, proxy.NewFinding(Finding{Name: "kubeproxy.way.forward", Verdict: verdict.Warn, Message: what, Remedy: ofHostPorts}))
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
		if l.Kind == replica.PartSysctl {
			f.Rule = ""
		}
	} else if !l.Legacy && l.Family != ruleset.IPv4 && l.Family != ruleset.IPv6 {
		f.Table = l.Family + " " + l.Table
	}
	sent, gone, strange, node := 0, 0, true, true
	for _, r := range lost {
		sent, gone = sent+r.Sent, gone+r.Lost
		strange = strange && !r.Node && !r.Pod
		node = node && (r.Kind == replay.ToKubelet || r.Kind == replay.ToOverlay || r.Kind == replay.ToHostPort)
		if r.Kind == replay.ToService {
			f.Name = "kubeproxy.way.service"
		}
	}
	is6 := func(r Flow) bool { return r.To.Addr().Is6() }
	switch {
	case !slices.ContainsFunc(lost, is6):
		f.Family = ruleset.IPv4
	case !slices.ContainsFunc(lost, func(r Flow) bool { return !is6(r) }):
		f.Family = ruleset.IPv6
	}
	others := func(r Flow) bool { return r.Service != lost[0].Service }
	if f.Name == "kubeproxy.way.service" && !slices.ContainsFunc(lost, others) {
		f.Service = lost[0].Service
	}
	if node || f.Name == "kubeproxy.way.service" && strange || gone*2 < sent || l.Kind == "" ||
		l.Kind == replica.PartNextHop {
		f.Verdict = verdict.Warn // closed on purpose, a rule that loses few, another machine's fault, or what the copy itself may lack
	}
	some := ""
	if gone < sent {
		some = "some "
	}
	f.Message = fmt.Sprintf("%spackets %s: %s", some, DescribeFlows(lost), Describe(l))
	if l.Kind == "" || !l.Cured {
		f.Message += ": " + lost[0].Why
	}
	return proxy.NewFinding(f), true
}

// DescribeFlows returns who lacks an answer of whom: "from Pods and the node to Services (a, b) and machines outside".
func DescribeFlows(lost []Flow) string {
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
		case replay.ToPort, replay.ToHostPort:
			add(&to, fmt.Sprintf("port %d of the node", r.To.Port()))
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
