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

// sendRequest sends the request and fills in the result.
func (b *bench) sendRequest(ctx context.Context, o BridgeOptions, r *BridgeResult) error {
	stop, err := b.serveEcho(ctx)
	if err != nil {
		return err
	}
	defer stop()
	// The port is known in advance so that the flow can be found in conntrack and deleted.
	r.Client = netip.AddrPortFrom(b.slot.client, randomPort())
	answer := b.exchange(ctx, r.Client, o.timeout())
	if err := contextErr(ctx); err != nil {
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
	seen.countSegments(clientSaw, serverSaw, r.Service, r.Endpoint, r.Client)
	if seen.Settings, err = b.readSettings(ctx); err != nil {
		return err
	}
	if seen.Conntrack, err = b.takeFlow(ctx, r.Client); err != nil {
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

// serveEcho runs an echo server in the server's namespace until stopped.
func (b *bench) serveEcho(ctx context.Context) (stop func(), err error) {
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
			// If the deadline cannot be set, the echo fails.
			_ = c.SetDeadline(deadline)
			_, _ = io.CopyN(c, c, tokenSize)
			_ = c.Close()
		}
	}()
	return func() { _ = l.Close(); <-done }, nil
}

const tokenSize = 16

// errUntranslated ends an exchange early: later replies cannot change the result.
var errUntranslated = errors.New("a reply came from the endpoint's own address")

// exchange connects from the client's namespace and expects a token back.
func (b *bench) exchange(ctx context.Context, from netip.AddrPort, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	ctx, abort := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		b.watchReplies(ctx, abort)
	}()
	defer func() { abort(nil); <-watched }()

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
	_, _ = rand.Read(token) // documented never to fail
	if _, err := conn.Write(token); err != nil {
		return err
	}
	back := make([]byte, tokenSize)
	if _, err := io.ReadFull(conn, back); err != nil {
		return err
	}
	if string(back) != string(token) {
		return errors.New("the answer does not come from the scratch endpoint")
	}
	return nil
}

// watchReplies aborts the exchange as soon as it sees an untranslated reply, instead of waiting for the
// timeout. It is the capture's only user until it returns.
func (b *bench) watchReplies(ctx context.Context, abort context.CancelCauseFunc) {
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
			return // the final read reports the error
		}
		for _, s := range segments {
			if !s.Out && s.From == b.slot.endpoint {
				abort(errUntranslated)
				return
			}
		}
	}
}

// The settings that the path of a reply depends on.
const (
	forwardKey = "net/ipv4/ip_forward"
	callKey    = "net/bridge/bridge-nf-call-iptables"
)

func (b *bench) readSettings(ctx context.Context) (s Settings, err error) {
	if s.Forward, err = b.router.Sysctl(ctx, forwardKey); err != nil {
		return s, err
	}
	s.CallIPTables, err = b.router.Sysctl(ctx, callKey)
	if errors.Is(err, fs.ErrNotExist) {
		s.CallIPTables, err = Absent, nil
	}
	return s, err
}

// takeFlow returns the probe's flow from conntrack and deletes it there.
func (b *bench) takeFlow(ctx context.Context, client netip.AddrPort) (*netns.Flow, error) {
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

// protoTCP and protoUDP are protocol numbers of the IP header.
const (
	protoTCP uint8 = 6
	protoUDP uint8 = 17
)

// randomPort returns one of the dynamic ports, so that a flow which an earlier probe could not delete
// is unlikely to match.
func randomPort() uint16 {
	var b [2]byte
	_, _ = rand.Read(b[:]) // documented never to fail
	return 49152 + (uint16(b[0])<<8|uint16(b[1]))%16384
}
