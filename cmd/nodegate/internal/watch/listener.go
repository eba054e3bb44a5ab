package watch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/netutil"

	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/verdict"
)

// Pages holds the pages of the listener. Each function writes a whole page. The functions are
// called for every request, from several goroutines.
type Pages struct {
	Metrics func(io.Writer) error
	Check   func(w io.Writer, full bool) (pass bool, err error) // writes the report, or the failures in one line
	Health  func() error                                        // returns nil while watch works
}

// Pages returns the listener's pages for w.
func (w *Watcher) Pages() Pages {
	return Pages{
		Metrics: func(out io.Writer) error { return w.State().Document(w.Host).Metrics(out) },
		Check: func(out io.Writer, full bool) (bool, error) {
			s := w.State()
			d := s.Document(w.Host)
			pass := d.Verdict(time.Now()) == verdict.Pass
			if full {
				return pass, report.JSON(out, d.Report)
			}
			line := s.Condition("").Message
			if late := s.Late(time.Now()); late != nil {
				line = "nodegate watch has not finished a round for too long"
			}
			_, err := fmt.Fprintln(out, line)
			return pass, err
		},
		Health: func() error { return w.State().Late(time.Now()) },
	}
}

// The limits of the listener. Any program on the machine may connect to it; none may
// make it use much memory, or block other programs for long.
const (
	mostConnections = 256
	headerTime      = time.Second
	answerTime      = 5 * time.Second
	idleTime        = time.Second
	headerBytes     = 8 << 10
)

// Listener is an open --listen address.
type Listener struct {
	net.Listener
	name string // the host in --listen
}

// Listen opens host:port. The host is required: to listen on all addresses, the operator
// must ask for it with 0.0.0.0 or [::].
func Listen(address string) (*Listener, error) {
	name, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("--listen must be HOST:PORT, for example 127.0.0.1:9758: %w", err)
	}
	if name == "" {
		return nil, fmt.Errorf("--listen %s has no address; use 127.0.0.1:%[2]s, or 0.0.0.0:%[2]s for all addresses of the machine",
			address, port)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", address, err)
	}
	return &Listener{netutil.LimitListener(l, mostConnections), name}, nil
}

// Serve serves the pages until ctx ends.
func Serve(ctx context.Context, l *Listener, p Pages) error {
	s := &http.Server{
		Handler: l.checkHost(p.handler()), ReadHeaderTimeout: headerTime, ReadTimeout: answerTime, WriteTimeout: answerTime,
		IdleTimeout: idleTime, MaxHeaderBytes: headerBytes,
	}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving on %s: %w", l.Addr(), err)
	}
	return nil
}

// checkHost refuses a request for another host than a loopback listener's. A page in a browser on this machine can make its own
// name resolve to 127.0.0.1, and then read the answers of the listener (DNS rebinding). Its requests carry that name. An address
// in the Host header is not a name that such a page could have.
//
// A listener on any other address does not check: the operator has opened it to the network without a password, so its pages
// are no secret from a browser there, and Prometheus may use any name of the node, which nodegate cannot list.
func (l *Listener) checkHost(next http.Handler) http.Handler {
	address, is := l.Addr().(*net.TCPAddr)
	if !is || !address.IP.IsLoopback() {
		return next
	}
	machine, _ := os.Hostname() // Debian's /etc/hosts has it as 127.0.1.1
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isOwnHost(r.Host, l.name, machine) {
			next.ServeHTTP(w, r)
			return
		}
		http.Error(w, fmt.Sprintf("This listener is for this machine only. Query it as http://%s, not as %.100q.", address, r.Host),
			http.StatusMisdirectedRequest)
	})
}

// isOwnHost reports whether a Host header is an address, localhost, or one of names. It ignores the port, which a tunnel changes.
// HTTP/1.0 has no such header, and no browser sends HTTP/1.0.
func isOwnHost(header string, names ...string) bool {
	host := header
	if name, _, err := net.SplitHostPort(header); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	if _, err := netip.ParseAddr(host); err == nil || host == "" || host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	return slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(host, strings.TrimSuffix(name, ".")) })
}

func (p Pages) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		writePage(w, "text/plain; version=0.0.4; charset=utf-8", func(b io.Writer) (bool, error) { return true, p.Metrics(b) })
	})
	mux.HandleFunc("GET /check", func(w http.ResponseWriter, r *http.Request) {
		full, contentType := r.URL.Query().Has("full"), "text/plain; charset=utf-8"
		if full {
			contentType = "application/json"
		}
		writePage(w, contentType, func(b io.Writer) (bool, error) { return p.Check(b, full) })
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		writePage(w, "text/plain; charset=utf-8", func(b io.Writer) (bool, error) {
			if err := p.Health(); err != nil {
				_, _ = fmt.Fprintln(b, err)
				return false, nil
			}
			_, err := fmt.Fprintln(b, "ok")
			return true, err
		})
	})
	return mux
}

// writePage renders the whole page before it writes, so that the HTTP status is right.
func writePage(w http.ResponseWriter, contentType string, render func(io.Writer) (bool, error)) {
	var b bytes.Buffer
	pass, err := render(&b)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", contentType)
	if !pass {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = w.Write(b.Bytes())
}
