package watch

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"nodegate/internal/assert"
	"nodegate/internal/require"
)

// serving starts a listener; the returned value sets whether its node passes.
func serving(t *testing.T) (address string, passes *atomic.Bool) {
	t.Helper()
	return servingOn(t, "127.0.0.1:0")
}

func servingOn(t *testing.T, listen string) (address string, passes *atomic.Bool) {
	t.Helper()
	passes = &atomic.Bool{}
	l, err := Listen(listen)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- Serve(ctx, l, Pages{
			Metrics: func(w io.Writer) error {
				_, err := io.WriteString(w, strings.Repeat("nodegate_requirement 1\n", 10000))
				return err
			},
			Check: func(w io.Writer, full bool) (bool, error) {
				_, err := fmt.Fprintf(w, `{"pass":%t}`, passes.Load())
				return passes.Load(), err
			},
			Health: func() error {
				if passes.Load() {
					return nil
				}
				return errors.New("the last round is late")
			},
		})
	}()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-ended)
	})
	return l.Addr().String(), passes
}

// ask sends a raw request and returns the status line, or "" without a response.
func ask(t *testing.T, address, request string) string {
	t.Helper()
	c, err := net.Dial("tcp", address)
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	_, _ = io.WriteString(c, request)
	line, _ := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSpace(strings.TrimPrefix(line, "HTTP/1.1 "))
}

func TestStatusCodes(t *testing.T) {
	address, passes := serving(t)
	get := func(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n" }
	passes.Store(true)
	for _, c := range []struct{ name, request, want string }{
		{"metrics", get("/metrics"), "200 OK"},
		{"check", get("/check"), "200 OK"},
		{"health", get("/healthz"), "200 OK"},
		{"head", "HEAD /check HTTP/1.1\r\nHost: localhost\r\n\r\n", "200 OK"},
		{"another page", get("/"), "404 Not Found"},
		{"a path outside the pages", get("/metrics/../../etc/passwd"), "307 Temporary Redirect"},
		{"a method that writes", "POST /check HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", "405 Method Not Allowed"},
		{"an unknown method", "BREW /check HTTP/1.1\r\nHost: localhost\r\n\r\n", "405 Method Not Allowed"},
		{"an oversized header", "GET /check HTTP/1.1\r\nHost: localhost\r\nA: " + strings.Repeat("a", 1<<20) + "\r\n\r\n",
			"431 Request Header Fields Too Large"},
		{"not HTTP", "hello\r\n\r\n", "400 Bad Request"},
	} {
		assert.Equal(t, ask(t, address, c.request), c.want, "%s", c.name)
	}
	passes.Store(false)
	for _, path := range []string{"/check", "/healthz"} {
		assert.Equal(t, ask(t, address, get(path)), "503 Service Unavailable", "%s of a node that fails", path)
	}
}

// TestCrowd: a thousand connections that read nothing, or send nothing, need little
// memory and are dropped; a request among them is answered in the end.
func TestCrowd(t *testing.T) {
	address, passes := serving(t)
	passes.Store(true)
	before := heap()
	var crowd []net.Conn
	var most uint64
	for i := range 1000 {
		c, err := net.Dial("tcp", address)
		require.NoError(t, err)
		crowd = append(crowd, c)
		if i%2 == 0 {
			_, _ = io.WriteString(c, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
		}
		if i%100 == 0 {
			most = max(most, heap())
		}
	}
	defer func() {
		for _, c := range crowd {
			_ = c.Close()
		}
	}()
	client := http.Client{Timeout: 2 * time.Minute}
	resp, err := client.Get("http://" + address + "/check")
	require.NoError(t, err)
	resp.Body.Close()
	assert.Equal(t, resp.StatusCode, http.StatusOK, "status")
	most = max(most, heap())
	if grown := int64(most) - int64(before); grown > 64<<20 {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	} else {
		t.Logf("the heap grew by %.1f MiB, of both sides", float64(grown)/(1<<20))
	}
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

// TestManyReaders: each of many concurrent readers receives the whole page.
func TestManyReaders(t *testing.T) {
	address, _ := serving(t)
	var readers sync.WaitGroup
	for range 200 {
		readers.Go(func() {
			var lines int
			var err error
			for range 100 { // on a loaded machine, the listener's own time limits end a connection
				if lines, err = readLines("http://" + address + "/metrics"); err == nil {
					break
				}
			}
			assert.True(t, err == nil && lines == 10000, "%d lines, %v", lines, err)
		})
	}
	readers.Wait()
}

func readLines(url string) (int, error) {
	resp, err := http.Get(url)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return bytes.Count(b, []byte("\n")), err
}

func TestListenAddress(t *testing.T) {
	for _, c := range []struct{ address, want string }{
		{":9758", "--listen :9758 has no address; use 127.0.0.1:9758, or 0.0.0.0:9758 for all addresses of the machine"},
		{"9758", "--listen must be HOST:PORT, for example 127.0.0.1:9758: address 9758: missing port in address"},
		{"127.0.0.1:http-no", "listening on 127.0.0.1:http-no: "},
	} {
		_, err := Listen(c.address)
		assert.True(t, err != nil && strings.HasPrefix(err.Error(), c.want), "%s: %v, want %s", c.address, err, c.want)
	}
}

// TestRebinding: a listener on loopback answers only requests for this machine's names and addresses; one on another address
// answers every request, as Prometheus may send it. SECURITY.md: listener.
func TestRebinding(t *testing.T) {
	machine, err := os.Hostname()
	require.NoError(t, err)
	const refused = "421 Misdirected Request"
	for _, c := range []struct{ host, loopback string }{
		{"127.0.0.1:9758", "200 OK"},
		{"127.0.0.1", "200 OK"},
		{"[::1]:9758", "200 OK"},
		{"[::1]", "200 OK"},
		{"localhost:9758", "200 OK"},
		{"LOCALHOST.", "200 OK"},
		{"localhost:18080", "200 OK"}, // through a tunnel
		{"nodegate.localhost", "200 OK"},
		{machine + ":9758", "200 OK"},
		{"10.1.2.3:9758", "200 OK"}, // no page is named by an address that it does not have
		{"", "200 OK"},
		{"evil.example:9758", refused},
		{"evil.example", refused},
		{"127.0.0.1.evil.example", refused},
		{"localhost.evil.example:9758", refused},
		{"evillocalhost", refused},
		{"node17.example:9758", refused},
	} {
		for listen, want := range map[string]string{"127.0.0.1:0": c.loopback, "127.0.0.2:0": c.loopback, "0.0.0.0:0": "200 OK"} {
			address, passes := servingOn(t, listen)
			passes.Store(true)
			_, port, _ := net.SplitHostPort(address)
			to := map[string]string{"0.0.0.0:0": "127.0.0.1:" + port}[listen]
			for _, page := range []string{"/metrics", "/check?full", "/healthz"} {
				got := ask(t, cmp.Or(to, address), "GET "+page+" HTTP/1.1\r\nHost: "+c.host+"\r\n\r\n")
				assert.Equal(t, got, want, "%s of %s for Host %q", page, listen, c.host)
			}
		}
	}
	assert.True(t, isOwnHost("Node17.example:9758", "node17.example"), "the name in --listen is refused")
	address, _ := serving(t)
	assert.Equal(t, ask(t, address, "GET http://evil.example/metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"), refused,
		"a request line with another host")
	assert.Equal(t, ask(t, address, "GET /metrics HTTP/1.0\r\n\r\n"), "HTTP/1.0 200 OK", "HTTP/1.0")
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/metrics", nil)
	require.NoError(t, err)
	request.Host = "evil.example"
	resp, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	want := "This listener is for this machine only. Query it as http://" + address + ", not as \"evil.example\".\n"
	assert.True(t, err == nil && string(text) == want, "%v, %s", err, text)
}
