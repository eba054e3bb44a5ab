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
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"nodegate/internal/audit/proxy"
	"nodegate/internal/input"
)

// answers is an API server. It returns the start of a response and a function that writes the rest;
// nil: the response never ends.
type answers func(r *http.Request) (text string, more func(io.Writer) error)

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	text, more := a(r)
	body, w := io.Pipe()
	context.AfterFunc(r.Context(), func() { _ = w.CloseWithError(r.Context().Err()) })
	go func() {
		if _, err := io.WriteString(w, text); err == nil && more != nil {
			_ = w.CloseWithError(more(w))
		}
	}()
	return &http.Response{StatusCode: http.StatusOK, Body: body, Request: r}, nil
}

func (a answers) api() *API { return &API{&Client{http: &http.Client{Transport: a}}} }

func noMore(io.Writer) error { return io.EOF }

func isWatch(r *http.Request) bool { return r.URL.Query().Get("watch") != "" }

// list returns a list with one item of each kind.
func list(r *http.Request) (string, func(io.Writer) error) {
	item := `{"kind": "Service", "metadata": {"namespace": "prod", "name": "np"}, "spec": {"clusterIP": "10.96.0.7", "ports": [{"port": 80}]}}`
	if r.URL.Path == slicesPath {
		item = `{"kind": "EndpointSlice", "addressType": "IPv4", "metadata": {"namespace": "prod", "name": "np-1"}, "endpoints": []}`
	}
	return `{"metadata": {"resourceVersion": "1"}, "items": [` + item + `]}`, noMore
}

// TestListStalls: a list that begins but does not end is an error.
func TestListStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		api := answers(func(*http.Request) (string, func(io.Writer) error) { return `{"metadata": {}, "items": [`, nil }).api()
		_, err := api.List(t.Context(), false)
		if took := time.Since(began); !errors.Is(err, input.ErrUnknown) || took > 3*time.Minute {
			t.Errorf("after %s: %v", took, err)
		}
	})
}

// TestSilentWatch: a watch without events is restarted from the last version that it received,
// without a new list. One with bookmarks continues.
func TestSilentWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var asked []string
		api := answers(func(r *http.Request) (string, func(io.Writer) error) {
			mu.Lock()
			defer mu.Unlock()
			switch asked = append(asked, fmt.Sprint(r.URL.Path, " ", r.URL.Query().Get("resourceVersion"))); {
			case !isWatch(r):
				t.Error("listed again")
				return list(r)
			case r.URL.Path == servicesPath && len(asked) <= 2:
				return `{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "7"}}}`, nil
			case r.URL.Path == servicesPath:
				return "", nil
			}
			return "", func(w io.Writer) error {
				for {
					time.Sleep(time.Minute)
					if _, err := io.WriteString(w, `{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "8"}}}`); err != nil {
						return err
					}
				}
			}
		}).api()
		from, err := answers(list).api().List(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error)
		go func() { failed <- api.Follow(ctx, from, func(proxy.Event) {}) }()
		time.Sleep(14 * time.Minute)
		mu.Lock()
		got := strings.Join(asked[2:], ", ")
		mu.Unlock()
		if want := servicesPath + " 7, " + servicesPath + " 7"; got != want {
			t.Errorf("after both watches: %s, want %s", got, want)
		}
		cancel()
		if err := <-failed; err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute) // the next bookmark is not received
	})
}

// TestExpiredRepeatedly: an API server that no longer has the version it has just listed is not queried
// in a tight loop.
func TestExpiredRepeatedly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		lists := 0
		api := answers(func(r *http.Request) (string, func(io.Writer) error) {
			mu.Lock()
			defer mu.Unlock()
			if isWatch(r) {
				return `{"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}}`, noMore
			}
			if lists++; lists > 100 {
				return "{", noMore
			}
			return list(r)
		}).api()
		v, err := api.List(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		if err := api.Follow(ctx, v, func(proxy.Event) {}); err != nil {
			t.Error(err)
		}
		if lists < 2*5 || lists > 2*20 {
			t.Errorf("%d lists in ten minutes", lists)
		}
	})
}

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
	if err != nil {
		t.Fatal(err)
	}
	if err := c.get(t.Context(), "/", func(io.Reader) error { return nil }); err != nil || version != 2 {
		t.Errorf("by HTTP/%d: %v", version, err)
	}
	if pings := c.http.Transport.(*http.Transport).HTTP2; pings == nil || pings.SendPingTimeout == 0 || pings.PingTimeout == 0 {
		t.Errorf("no ping on an idle connection: %+v", pings)
	}
}

// TestBlackHole: if an API server's address does not respond at all, the wait ends by its own
// timeout.
func TestBlackHole(t *testing.T) {
	t.Parallel()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	// No program accepts connections: once the queue is full, the kernel does not reply to a SYN.
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", name.(*unix.SockaddrInet4).Port)
	for full := false; !full; {
		c, err := net.DialTimeout("tcp", address, time.Second)
		if full = err != nil; !full {
			defer func() { _ = c.Close() }()
		}
	}
	c, err := newClient("https://"+address, &tls.Config{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := c.get(ctx, "/", func(io.Reader) error { return nil }); err == nil || ctx.Err() != nil {
		t.Errorf("%v, only after the whole timeout: %v", err, ctx.Err())
	}
}
