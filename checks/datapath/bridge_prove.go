package datapath

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"time"

	"nodegate/internal/host/netns"
)

// prove sends the request and fills in the result.
func (b *bench) prove(ctx context.Context, o BridgeOptions, r *BridgeResult) error {
	stop, err := b.serve(ctx)
	if err != nil {
		return err
	}
	defer stop()
	// Known beforehand, so that conntrack can be asked and told to forget.
	r.Client = netip.AddrPortFrom(b.slot.client, randomPort())
	answer := b.exchange(ctx, r.Client, o.timeout())
	if err := ended(ctx); err != nil {
		return err
	}

	seen := &r.Observed
	seen.Exchanged = answer == nil
	if answer != nil {
		seen.Error = answer.Error()
	}
	if seen.Hooks, err = b.redirect.Hits(ctx); err != nil {
		return err
	}
	clientSaw, err := b.atClient.Segments()
	if err != nil {
		return err
	}
	serverSaw, err := b.atServer.Segments()
	if err != nil {
		return err
	}
	seen.count(clientSaw, serverSaw, r.Service, r.Endpoint, r.Client)
	if seen.Settings, err = b.settings(ctx); err != nil {
		return err
	}
	if seen.Conntrack, err = b.conntrack(ctx, r.Client); err != nil {
		r.Warnings = append(r.Warnings, err.Error())
	}
	r.judge()
	return nil
}

// ended is ctx.Err, also in the moment after the deadline in which a socket
// knows of it and ctx does not yet.
func ended(ctx context.Context) error {
	if at, ok := ctx.Deadline(); ok && !time.Now().Before(at) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

// serve echoes what it gets, in the server's namespace, until stopped.
func (b *bench) serve(ctx context.Context) (stop func(), err error) {
	var l *net.TCPListener
	err = b.server.Do(ctx, func() (err error) {
		l, err = net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(b.slot.endpoint))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("opening the scratch endpoint: %w", err)
	}
	deadline, _ := ctx.Deadline()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			// A deadline that cannot be set shows as an echo that fails.
			_ = c.SetDeadline(deadline)
			_, _ = io.CopyN(c, c, tokenSize)
			_ = c.Close()
		}
	}()
	return func() { _ = l.Close(); <-done }, nil
}

const tokenSize = 16

// errUntranslated ends an exchange early: what comes now comes too late.
var errUntranslated = errors.New("a reply came from the endpoint's own address")

// exchange connects from the client's namespace and expects a token back.
func (b *bench) exchange(ctx context.Context, from netip.AddrPort, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	ctx, give := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		b.watch(ctx, give)
	}()
	defer func() { give(nil); <-watched }()

	var conn net.Conn
	err := b.client.Do(ctx, func() (err error) {
		// An address needs no resolver: the socket is made on this thread.
		d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(from)}
		conn, err = d.DialContext(ctx, "tcp4", b.slot.service.String())
		return err
	})
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if conn == nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	token := make([]byte, tokenSize)
	_, _ = rand.Read(token) // never fails, says crypto/rand
	if _, err := conn.Write(token); err != nil {
		return err
	}
	back := make([]byte, tokenSize)
	if _, err := io.ReadFull(conn, back); err != nil {
		return err
	}
	if string(back) != string(token) {
		return errors.New("the answer is not the scratch endpoint's")
	}
	return nil
}

// watch gives up as soon as an untranslated reply is seen: there is no need to
// wait for the timeout then. It is the capture's only user until it ends.
func (b *bench) watch(ctx context.Context, give context.CancelCauseFunc) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		segments, err := b.atClient.Segments()
		if err != nil {
			return // the last look will say so
		}
		for _, s := range segments {
			if !s.Out && s.From == b.slot.endpoint {
				give(errUntranslated)
				return
			}
		}
	}
}

// The settings on which the way of a reply depends.
const (
	forwardKey = "net/ipv4/ip_forward"
	callKey    = "net/bridge/bridge-nf-call-iptables"
)

func (b *bench) settings(ctx context.Context) (s Settings, err error) {
	if s.Forward, err = b.router.Sysctl(ctx, forwardKey); err != nil {
		return s, err
	}
	s.CallIPTables, err = b.router.Sysctl(ctx, callKey)
	if errors.Is(err, fs.ErrNotExist) {
		s.CallIPTables, err = Absent, nil
	}
	return s, err
}

// conntrack reads the probe's flow, and makes the table forget it.
func (b *bench) conntrack(ctx context.Context, client netip.AddrPort) (*netns.Flow, error) {
	table, err := b.router.Conntrack(ctx)
	if err != nil {
		return nil, err
	}
	defer table.Close()
	key := netns.Tuple{From: client, To: b.slot.service, Proto: protoTCP}
	flow, err := table.Lookup(key)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	if err := table.Delete(key); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &flow, err
	}
	return &flow, nil
}

// protoTCP and protoUDP are numbers of the IP header.
const (
	protoTCP uint8 = 6
	protoUDP uint8 = 17
)

// randomPort is one of the dynamic ports: a flow that an earlier probe could
// not make the kernel forget is not met again.
func randomPort() uint16 {
	var b [2]byte
	_, _ = rand.Read(b[:]) // never fails, says crypto/rand
	return 49152 + (uint16(b[0])<<8|uint16(b[1]))%16384
}
