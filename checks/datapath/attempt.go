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

// attempt is one connection, with the endpoint that it was sent to according to conntrack.
type attempt struct {
	took     time.Duration
	failed   string         // the reason in a word or two; "" on success
	rcode    string         // response code of a DNS answer
	endpoint netip.AddrPort // the zero value if unknown
	unknown  error          // the reason for an unknown endpoint; nil if the flow was not tracked
	broken   error          // the attempt could not be made; not a failure of the Service
}

type prober struct {
	n      *netns.Namespace
	o      ServiceOptions
	proto  uint8
	source netip.Addr
	target netip.AddrPort
	query  query
	table  *netns.Conntrack
}

// runAttempts makes the attempts with a bounded number of workers.
func (p *prober) runAttempts(ctx context.Context) ([]attempt, error) {
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
				results <- p.tryOnce(ctx)
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
		case a.failed != "" && contextErr(ctx) != nil:
			continue // interrupted: it might have succeeded
		}
		all = append(all, a)
	}
	err := context.Cause(ctx)
	if err == nil {
		err = contextErr(ctx)
	}
	if err != nil {
		err = fmt.Errorf("after %d of %d attempts: %w", len(all), p.o.N, err)
	}
	return all, err
}

// tryOnce makes one attempt.
func (p *prober) tryOnce(ctx context.Context) attempt {
	s, err := p.n.Attempt(ctx, p.proto, p.source, p.target, false)
	if errors.Is(err, syscall.EADDRINUSE) {
		err = errors.New("every local port is in use (net.ipv4.ip_local_port_range)")
	}
	if err != nil {
		return attempt{broken: err}
	}
	return p.try(ctx, s)
}

// try makes an attempt and looks up its flow while the socket still holds the port.
func (p *prober) try(ctx context.Context, s *netns.Attempt) (a attempt) {
	defer s.Close()
	limited, cancel := context.WithTimeout(ctx, p.o.Timeout)
	defer cancel()
	start := time.Now()
	err := s.Connect(limited)
	if err == nil && p.proto == protoUDP {
		err = s.Ask(limited, p.query.packet, func(answer []byte) (ok bool) {
			a.rcode, ok = p.query.parseAnswer(answer)
			return ok
		})
	}
	a.took, a.failed = time.Since(start), failureReason(err)

	key := netns.Tuple{From: s.From, To: p.target, Proto: p.proto}
	flow, err := p.table.Lookup(key)
	switch {
	case err == nil:
		a.endpoint = flow.Reply.From
	case !errors.Is(err, fs.ErrNotExist):
		a.unknown = err
		return a
	}
	if err == nil && (a.failed != "" || p.proto == protoUDP) {
		// If this fails, the entry only stays until its timeout.
		_ = p.table.Delete(key)
	}
	return a
}

// failureReason describes an error in a word or two, the same for the same kind of failure.
func failureReason(err error) string {
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
