package kube

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nodegate/internal/assert"
	"nodegate/internal/require"
)

// TestIdleConnectionPing: a connection whose other end has disappeared is noticed.
func TestIdleConnectionPing(t *testing.T) {
	version := 0
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { version = r.ProtoMajor }))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	c, err := newClient(s.URL, &tls.Config{RootCAs: pool}, nil)
	require.NoError(t, err)
	err = c.Get(t.Context(), "/", func(io.Reader) error { return nil })
	assert.True(t, err == nil && version == 2, "by HTTP/%d: %v", version, err)
	pings := c.http.Transport.(*http.Transport).HTTP2
	assert.True(t, pings != nil && pings.SendPingTimeout != 0 && pings.PingTimeout != 0, "no ping on an idle connection: %+v", pings)
}

// TestBlackHole: if an API server's address does not respond at all, the wait ends by its own timeout.
func TestBlackHole(t *testing.T) {
	t.Parallel()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer func() { _ = unix.Close(fd) }()
	// No program accepts connections: once the queue is full, the kernel does not reply to a SYN.
	require.NoError(t, errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(fd, 0)))
	name, err := unix.Getsockname(fd)
	require.NoError(t, err)
	address := fmt.Sprintf("127.0.0.1:%d", name.(*unix.SockaddrInet4).Port)
	for full := false; !full; {
		c, err := net.DialTimeout("tcp", address, time.Second)
		if full = err != nil; !full {
			defer func() { _ = c.Close() }()
		}
	}
	c, err := newClient("https://"+address, &tls.Config{}, nil)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err = c.Get(ctx, "/", func(io.Reader) error { return nil })
	assert.True(t, err != nil && ctx.Err() == nil, "%v, only after the whole timeout: %v", err, ctx.Err())
}
