package datapath

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strings"
	"time"

	"nodegate/internal/host/netns"
	"nodegate/internal/host/replica"
	"nodegate/internal/ruleset"
)

// The bridge and its addresses, in the documentation ranges of RFC 5737: no rule should be about them.
const bridgeName = "ngprobe"

var (
	bridgeGateway  = netip.MustParsePrefix("203.0.113.1/28")
	bridgeClient   = netip.MustParseAddr("203.0.113.2")
	bridgeEndpoint = netip.MustParseAddrPort("203.0.113.3:80")
	bridgeService  = netip.MustParseAddrPort("198.51.100.10:80")
)

// probeIn sends the request over a bridge in a copy of the router's rules and settings. A CNI that accepts its Pods' range does not
// accept the probe's addresses, and that is not a fault of the bridge: if policies of hook forward drop them, the copy loses these.
func probeIn(ctx context.Context, router *netns.Namespace, o BridgeOptions) (r BridgeResult, err error) {
	r = BridgeResult{Service: bridgeService, Endpoint: bridgeEndpoint}
	c, err := replica.ReadBridge(ctx, router, bridgeName, bridgeGateway, bridgeClient, bridgeEndpoint.Addr())
	if err != nil {
		return r, err
	}
	if r.Observed.Settings, err = readSettings(ctx, router); err != nil {
		return r, err
	}
	without, policies := map[int]bool{}, []string(nil)
	for i := range c.Parts {
		if p := &c.Parts[i]; p.Kind == replica.PartPolicy && p.Forwards && p.FamilyName() != "ip6" {
			without[i], policies = true, append(policies, cmp.Or(map[bool]string{true: ruleset.Legacy}[p.Legacy], p.FamilyName())+" "+
				p.Table+" "+p.Chain)
		}
	}
	wait := cmp.Or(o.Timeout, defaultTimeout)
	err = r.send(ctx, c, nil, wait)
	if err != nil || len(without) == 0 || r.Lost != RequestDropped && r.Lost != ReplyDropped {
		return r, err
	}
	again := r
	if err := again.send(ctx, c, without, wait); err != nil || again.Lost == r.Lost {
		return r, err
	}
	again.Summary = fmt.Sprintf("%s, in a copy without the policy of %s, which drops the probe's addresses: the CNI must accept the "+
		"Pods' addresses there", again.Summary, strings.Join(policies, ", "))
	return again, nil
}

// send sends the request in a copy without some parts, and fills in the result.
func (r *BridgeResult) send(ctx context.Context, c *replica.Capture, without map[int]bool, wait time.Duration) error {
	copied, err := replica.Build(ctx, c, &replica.Spec{Ports: []replica.Port{{Protocol: protoTCP, Number: bridgeEndpoint.Port()}},
		Pods: []replica.Pod{{Addresses: []netip.Addr{bridgeClient}}, {Addresses: []netip.Addr{bridgeEndpoint.Addr()}}}})
	if err != nil {
		return err
	}
	defer copied.Close()
	if len(without) > 0 {
		if err := copied.Load(ctx, without); err != nil {
			return err
		}
	}
	r.Observed, r.Warnings = Observed{Settings: r.Observed.Settings}, nil
	for _, refused := range copied.Refused {
		r.Warnings = append(r.Warnings, "not in the copy of the host's rules: "+refused)
	}
	redirect, err := copied.Node.AddRedirect(ctx, netns.RedirectSpec{Name: bridgeName, Service: bridgeService, Endpoint: bridgeEndpoint,
		Client: bridgeClient})
	if err != nil {
		return err
	}
	var captures [2]*netns.Capture // on the links of the client and the server
	for i := range captures {
		if captures[i], err = copied.Ends[i].Namespace.Capture(ctx); err != nil {
			return err
		}
		defer func() { _ = captures[i].Close() }()
	}
	answer := exchange(ctx, copied, captures[0], wait)
	if err := contextErr(ctx); err != nil {
		return err
	}
	seen := &r.Observed
	seen.Exchanged = answer == nil
	if answer != nil {
		seen.Error = answer.Error()
	}
	if seen.Hooks, err = redirect.Hits(ctx); err != nil {
		return err
	}
	var saw [2][]netns.Segment
	for i := range captures {
		if saw[i], err = captures[i].Segments(); err != nil {
			return err
		}
	}
	r.Client = netip.AddrPortFrom(bridgeClient, 0)
	if i := slices.IndexFunc(saw[0], func(s netns.Segment) bool { return s.Out && s.To == bridgeService }); i >= 0 {
		r.Client = saw[0][i].From
	}
	seen.countSegments(saw[0], saw[1], r.Service, r.Endpoint, r.Client)
	if seen.Conntrack, err = findFlow(ctx, copied.Node, r.Client); err != nil {
		r.Warnings = append(r.Warnings, err.Error())
	}
	r.judge()
	return nil
}

// contextErr returns ctx.Err(), or DeadlineExceeded as soon as the deadline has passed: a socket may
// return before ctx is done.
func contextErr(ctx context.Context) error {
	if at, ok := ctx.Deadline(); ok && !time.Now().Before(at) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

// errUntranslated ends an exchange early: later replies cannot change the result.
var errUntranslated = errors.New("a reply came from the endpoint's own address")

// exchange connects from the client, and expects the answer of the endpoint.
func exchange(ctx context.Context, copied *replica.Replica, seen *netns.Capture, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	answered := make(chan error, 1)
	go func() {
		answer, err := copied.Send(ctx, replica.Call{End: 0, To: bridgeService, Protocol: protoTCP})
		if err == nil && answer.At != bridgeEndpoint {
			err = errors.New("the answer does not come from the scratch endpoint")
		}
		answered <- err
	}()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-answered:
			return err
		case <-tick.C:
		}
		segments, _ := seen.Segments() // the final read reports the error
		if slices.ContainsFunc(segments, func(s netns.Segment) bool { return !s.Out && s.From == bridgeEndpoint }) {
			cancel()
			if <-answered == nil { // after all
				return nil
			}
			return errUntranslated
		}
	}
}

// The settings that the path of a reply depends on.
const (
	forwardKey = "net/ipv4/ip_forward"
	callKey    = "net/bridge/bridge-nf-call-iptables"
)

func readSettings(ctx context.Context, n *netns.Namespace) (s Settings, err error) {
	if s.Forward, err = n.Sysctl(ctx, forwardKey); err != nil {
		return s, err
	}
	s.CallIPTables, err = n.Sysctl(ctx, callKey)
	if errors.Is(err, fs.ErrNotExist) {
		s.CallIPTables, err = Absent, nil
	}
	return s, err
}

// findFlow returns the probe's flow from conntrack.
func findFlow(ctx context.Context, n *netns.Namespace, client netip.AddrPort) (*netns.Flow, error) {
	table, err := n.Conntrack(ctx)
	if err != nil {
		return nil, err
	}
	defer table.Close()
	flow, err := table.Lookup(netns.Tuple{From: client, To: bridgeService, Proto: protoTCP})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return &flow, err
}

// protoTCP and protoUDP are protocol numbers of the IP header.
const (
	protoTCP uint8 = 6
	protoUDP uint8 = 17
)
