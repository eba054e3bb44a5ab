package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"nodegate/internal/audit/replay"
	"nodegate/internal/host"
	"nodegate/internal/host/replica"
	"nodegate/internal/ruleset"
	"nodegate/internal/verdict"
)

// AskWays sends packets of Pods, of the node and of other machines through a replica of the node.
func AskWays(ctx context.Context, h *host.Host, rep *Judgment) (Ways, error) {
	if slices.ContainsFunc(rep.Findings, func(f Finding) bool { return f.Name == "kubeproxy.backend.mixed" }) {
		return Ways{Skipped: "kube-proxy's rules of two modes are there, and the copy has some of them only"}, nil
	}
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
	a, err := ask(ctx, h, q)
	if err == nil && a.Skipped != "" {
		err = errors.New(a.Skipped)
	}
	return a, err
}

// rest is the shortest time between two replicas of one node in watch; a round waits for the answer of one for at most stay.
const (
	rest = time.Minute
	stay = 5 * time.Second
)

// recalled is what packets last showed in watch.
type recalled struct {
	mu       sync.Mutex
	begun    time.Time
	answered chan struct{} // closed at the end of the last question; nil before the first
	tried    time.Time     // that end; zero before it
	ways     Ways
	err      error
}

// ask asks a question by packets. In watch it does so at most once a minute, and sends none if other programs have changed nothing since no
// packet was lost. The packets have a time of their own: a round that they outlast has the answer before.
func ask(ctx context.Context, h *host.Host, q replay.Question) (Ways, error) {
	if h.Memory == nil {
		return askNode(ctx, h, q)
	}
	kept, _ := h.Memory.Packets.LoadOrStore([2]string{q.Sender, q.Cluster.Page.String()}, &recalled{})
	last := kept.(*recalled)
	begun, answered := last.renew(ctx, h, q)
	select {
	case <-answered:
	case <-ctx.Done():
	case <-time.After(time.Until(begun.Add(stay))):
	}
	last.mu.Lock()
	defer last.mu.Unlock()
	if last.tried.IsZero() {
		return Ways{}, errors.New("packets through a copy of the node are still on their way: the next round has what they show")
	}
	return last.ways, last.err
}

// renew asks the question again if it is time.
func (r *recalled) renew(ctx context.Context, h *host.Host, q replay.Question) (begun time.Time, answered <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.answered != nil && (r.tried.Before(r.begun) || time.Since(r.tried) < rest) {
		return r.begun, r.answered
	}
	done := make(chan struct{})
	r.begun, r.answered = time.Now(), done
	if len(r.ways.Losses) == 0 {
		q.Unless = r.ways.Fingerprint
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), replay.Longest)
		defer cancel()
		a, err := askNode(ctx, h, q)
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.err, r.tried = err, time.Now(); err != nil || !a.Unchanged {
			r.ways = a
		}
		close(done)
	}()
	return r.begun, done
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
		func(s *Service) bool {
			return slices.ContainsFunc(rep.HostPorts, func(p ruleset.HostPort) bool { return int(p.At.Port()) == s.NodePort })
		},
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
			for i := range rep.Services {
				s := &rep.Services[i]
				if !picked[i] && len(picked) < most && s.Family == family && len(s.Endpoints) > 0 && s.Protocol != "sctp" &&
					s.Verdict != verdict.Fail && is(s) {
					picked[i] = true
					addService(&q, s, rep.Mode == "nftables")
					break
				}
			}
		}
	}
	q.Cluster.HostPorts = rep.HostPorts
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
