package datapath

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"nodegate/internal/host/netns"
)

// Proto is the protocol of Service.
type Proto string

// TCP connects and closes. DNSUDP sends one query and expects an answer with any response code.
const (
	TCP    Proto = "tcp"
	DNSUDP Proto = "dns-udp"
)

// ServiceOptions configures Service.
type ServiceOptions struct {
	N           int           // attempts, each with a local port
	Concurrency int           // concurrent attempts; 0 means 50
	Timeout     time.Duration // of one attempt; 0 means two seconds
	Proto       Proto         // "" means TCP
	Netns       string        // file of the network namespace to connect from; "" means the caller's
}

const maxAttempts = 60_000

// Service connects N times to an address ("10.96.0.10:53", "name:port"), each time from another source
// port. It reports the failures and, from conntrack, the endpoint of each attempt. It deletes the flows
// of UDP and of failed attempts from conntrack.
//
// A failing Service is a result. Service returns an error only if it could not determine the result. If
// ctx ends early, the result counts the attempts up to then, and the error wraps ctx.Err(). Conntrack
// needs CAP_NET_ADMIN: without it, every endpoint is unknown and the result gives the reason.
func Service(ctx context.Context, addr string, o ServiceOptions) (ServiceResult, error) {
	n, err := netns.Current(ctx)
	if err != nil {
		return ServiceResult{}, err
	}
	defer n.Close()
	return serviceIn(ctx, n, addr, o)
}

// serviceIn connects from the namespace in the options, else from the node n, and reads conntrack in n.
func serviceIn(ctx context.Context, n *netns.Namespace, addr string, o ServiceOptions) (ServiceResult, error) {
	o, err := o.withDefaults()
	if err != nil {
		return ServiceResult{}, fmt.Errorf("probing %s: %w", addr, err)
	}
	start := time.Now()
	r := ServiceResult{Address: addr, Proto: o.Proto, N: o.N, OfNode: true}
	from := n
	if o.Netns != "" {
		if from, err = netns.Open(ctx, o.Netns); err != nil {
			return r, fmt.Errorf("probing %s: %w", addr, err)
		}
		defer from.Close()
		if r.OfNode, err = from.Same(n); err != nil {
			return r, fmt.Errorf("probing %s: %w", addr, err)
		}
	}
	attempts, err := r.probe(ctx, n, from, o)
	r.countAttempts(attempts)
	r.Duration = Millis(time.Since(start))
	if err != nil {
		return r, fmt.Errorf("probing %s: %w", addr, err)
	}
	return r, nil
}

func (o ServiceOptions) withDefaults() (ServiceOptions, error) {
	if o.Concurrency == 0 {
		o.Concurrency = 50
	}
	if o.Timeout == 0 {
		o.Timeout = 2 * time.Second
	}
	if o.Proto == "" {
		o.Proto = TCP
	}
	switch {
	case o.N < 1 || o.N > maxAttempts:
		return o, wrongCall("the number of attempts must be 1 to %d, is %d", maxAttempts, o.N)
	case o.Timeout < 0:
		return o, fmt.Errorf("timeout must not be negative, is %s", o.Timeout)
	case o.Proto != TCP && o.Proto != DNSUDP:
		return o, fmt.Errorf("unknown protocol %q; known protocols: %s, %s", o.Proto, TCP, DNSUDP)
	}
	o.Concurrency = min(o.Concurrency, o.N)
	return o, nil
}

// probe makes the attempts.
func (r *ServiceResult) probe(ctx context.Context, node, from *netns.Namespace, o ServiceOptions) ([]attempt, error) {
	var err error
	if r.Target, err = resolve(ctx, r.Address); err != nil {
		return nil, err
	}
	p, err := newProber(ctx, node, from, r.Target, o)
	if err != nil {
		return nil, err
	}
	r.Source = p.source
	defer p.table.Close()
	return p.runAttempts(ctx)
}

// newProber returns a prober of an address. The caller closes its table.
func newProber(ctx context.Context, node, from *netns.Namespace, target netip.AddrPort, o ServiceOptions) (*prober, error) {
	p := &prober{n: from, o: o, target: target, proto: protoTCP}
	var err error
	if p.source, err = from.SourceAddr(ctx, target); err != nil {
		return nil, err
	}
	if o.Proto == DNSUDP {
		p.proto = protoUDP
		if p.query, err = newQuery(); err != nil {
			return nil, err
		}
	}
	p.table, err = node.Conntrack(ctx)
	return p, err
}

// CallError is an invalid call: it fails on every node.
type CallError struct{ error }

func wrongCall(format string, args ...any) error { return CallError{fmt.Errorf(format, args...)} }

// resolve parses an address and looks up a name. It prefers IPv4, the common case for kube-proxy's rules.
func resolve(ctx context.Context, addr string) (netip.AddrPort, error) {
	name, service, err := net.SplitHostPort(addr)
	if bad, is := errors.AsType[*net.AddrError](err); is {
		return netip.AddrPort{}, wrongCall("want HOST:PORT: %s", bad.Err)
	} else if err != nil {
		return netip.AddrPort{}, err
	}
	if name == "" || service == "" {
		return netip.AddrPort{}, wrongCall("want HOST:PORT: host or port is empty")
	}
	port, err := net.DefaultResolver.LookupPort(ctx, "tcp", service)
	if err != nil || port == 0 {
		return netip.AddrPort{}, wrongCall("want HOST:PORT: %q is not a port", service)
	}
	// An address needs no resolver, and must not have a zone.
	if a, err := netip.ParseAddr(name); err == nil {
		if a.Zone() != "" {
			return netip.AddrPort{}, wrongCall("want HOST:PORT: a Service address cannot have a zone")
		}
		return netip.AddrPortFrom(a.Unmap(), uint16(port)), nil
	}
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
	if err != nil {
		return netip.AddrPort{}, err
	}
	for _, a := range found {
		if a = a.Unmap(); a.Is4() {
			return netip.AddrPortFrom(a, uint16(port)), nil
		}
	}
	if len(found) == 0 {
		return netip.AddrPort{}, fmt.Errorf("no address found for %s", strings.TrimSuffix(name, "."))
	}
	return netip.AddrPortFrom(found[0], uint16(port)), nil
}
