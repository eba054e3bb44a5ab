package datapath

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"nodegate/internal/host/netns"
)

// attempt is one connection, and where conntrack says that it was sent.
type attempt struct {
	took     time.Duration
	failed   string         // why, in a word or two; "" is success
	rcode    string         // of a DNS answer
	endpoint netip.AddrPort // not valid: unknown
	unknown  error          // why the endpoint is unknown; nil: the flow was not tracked
	broken   error          // the attempt could not be made: says nothing of the Service
}

type prober struct {
	n      *netns.Namespace
	o      ServiceOptions
	proto  uint8
	source netip.Addr
	target netip.AddrPort
	query  query
	table  *netns.Conntrack
	ports  chan uint16 // those not yet used
	failed int
}

// run makes the attempts with a bounded number of workers.
func (p *prober) run(ctx context.Context) ([]attempt, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	work := make(chan struct{}, p.o.N)
	for range p.o.N {
		work <- struct{}{}
	}
	close(work)
	results := make(chan attempt)
	var workers sync.WaitGroup
	for range p.o.Concurrency {
		workers.Go(func() {
			for range work {
				if ctx.Err() != nil {
					return
				}
				results <- p.try(ctx)
			}
		})
	}
	go func() { workers.Wait(); close(results) }()

	var all []attempt
	for a := range results {
		switch {
		case a.broken != nil:
			stop(a.broken)
			continue
		case a.failed != "" && ended(ctx) != nil:
			continue // cut short: it might have succeeded
		}
		all = append(all, a)
		if a.failed != "" {
			p.failed++
		}
		if p.o.Progress != nil {
			p.o.Progress(len(all), p.failed, p.o.N)
		}
	}
	err := context.Cause(ctx)
	if err == nil {
		err = ended(ctx)
	}
	if err != nil {
		err = fmt.Errorf("after %d of %d attempts: %w", len(all), p.o.N, err)
	}
	return all, err
}

// try makes one attempt, and looks up its flow while the socket still holds
// the port.
func (p *prober) try(ctx context.Context) (a attempt) {
	s, from, err := p.open(ctx)
	if err != nil {
		return attempt{broken: err}
	}
	defer s.Close()
	limited, cancel := context.WithTimeout(ctx, p.o.Timeout)
	defer cancel()
	start := time.Now()
	err = s.Connect(limited)
	if err == nil && p.proto == protoUDP {
		err = s.Ask(limited, p.query.packet, func(answer []byte) (ok bool) {
			a.rcode, ok = p.query.answered(answer)
			return ok
		})
	}
	a.took, a.failed = time.Since(start), reason(err)

	key := netns.Tuple{From: from, To: p.target, Proto: p.proto}
	flow, err := p.table.Lookup(key)
	switch {
	case err == nil:
		a.endpoint = flow.Reply.From
	case !errors.Is(err, fs.ErrNotExist):
		a.unknown = err
		return a
	}
	if err == nil && (a.failed != "" || p.proto == protoUDP) {
		// That it stays for its timeout is of no account.
		_ = p.table.Delete(key)
	}
	return a
}

// open takes the next port that is free.
func (p *prober) open(ctx context.Context) (*netns.Attempt, netip.AddrPort, error) {
	for {
		select {
		case port := <-p.ports:
			from := netip.AddrPortFrom(p.source, port)
			s, err := p.n.Attempt(ctx, p.proto, from, p.target)
			if errors.Is(err, syscall.EADDRINUSE) {
				continue
			}
			return s, from, err
		default:
			return nil, netip.AddrPort{}, errors.New("every local port is in use (net.ipv4.ip_local_port_range)")
		}
	}
}

// reason is a failure in a word or two, the same for the same failure.
func reason(err error) string {
	var no syscall.Errno
	switch {
	case err == nil:
		return ""
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, syscall.ETIMEDOUT):
		return "timeout"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, syscall.ECONNRESET):
		return "reset"
	case errors.Is(err, syscall.EHOSTUNREACH):
		return "host unreachable"
	case errors.Is(err, syscall.ENETUNREACH):
		return "network unreachable"
	case errors.Is(err, syscall.EPERM):
		return "forbidden by a local rule"
	case errors.As(err, &no):
		return no.Error()
	}
	return err.Error()
}
