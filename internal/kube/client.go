// Package kube reads the Services and EndpointSlices of a Kubernetes API server, with which the
// audit compares a node's rules, and kube-proxy's own status pages and log. If a policy requests
// it, the package also writes one condition of one Node.
package kube

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"nodegate/internal/host/file"
)

// token returns the bearer token of the caller, "" if the client certificate is enough.
type token func(context.Context) (string, error)

// Source names an API server. The zero value names none.
type Source struct {
	Kubeconfig string // a file
	InCluster  bool
	Plugins    *Plugins // for kubeconfigs with a credential plugin
}

// Client returns a client of the API server, nil without one.
func (s Source) Client() (*Client, error) {
	switch {
	case s.Kubeconfig != "":
		return FromKubeconfig(s.Kubeconfig, s.Plugins)
	case s.InCluster:
		return InCluster()
	}
	return nil, nil
}

// Unverified reports whether the kubeconfig turns off verification of the server's certificate: any
// machine on the network path could then forge the API's responses.
func (c *Client) Unverified() bool { return c.unverified }

// Close closes the connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Client reads from one API server.
type Client struct {
	server     string
	http       *http.Client
	token      token  // nil if the certificate is enough
	refused    func() // called when the API server rejects the credentials; may be nil
	node       string // the node that the credentials belong to, "" if they are not a node's
	unverified bool   // the server's certificate is not verified
}

// sendRequest sends one request. kind is the content type of the body. The caller closes the
// response's body.
func (c *Client) sendRequest(ctx context.Context, method, path, kind string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.server+path, body)
	if err != nil {
		return nil, fmt.Errorf("querying the API server: %w", err)
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "nodegate")
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	if c.token != nil {
		token, err := c.token(ctx)
		if err != nil {
			return nil, err
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
	}
	resp, err := c.http.Do(req)
	if err != nil {
		err = fmt.Errorf("querying the API server: %w", err)
		var stranger *tls.CertificateVerificationError
		if errors.As(err, &stranger) || errors.Is(err, errRedirects) {
			return nil, err
		}
		return nil, &transientError{err: err}
	}
	if resp.StatusCode == http.StatusUnauthorized && c.refused != nil {
		c.refused()
	}
	return resp, nil
}

// Get passes the response to one request to read, as it arrives.
func (c *Client) Get(ctx context.Context, path string, read func(io.Reader) error) error {
	resp, err := c.sendRequest(ctx, http.MethodGet, path, "", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
		return read(resp.Body)
	case http.StatusGone:
		return ErrExpired
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("querying the API server: %s: %s; these credentials may not list and watch it; use kube-proxy's own",
			resp.Request.URL.Path, plainStatus(resp))
	}
	err = fmt.Errorf("querying the API server: %s: %s", resp.Request.URL.Path, plainStatus(resp))
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500 {
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After")) // HTTP also allows a date, but no API server sends one
		return &transientError{err, time.Duration(seconds) * time.Second}
	}
	return err
}

// plainStatus returns the status of a response in the words of HTTP: the server may write any other.
func plainStatus(resp *http.Response) string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode)))
}

// transientError may not recur when the request is repeated: the API server is overloaded,
// starting, stopping or unreachable.
type transientError struct {
	err   error
	after time.Duration // wait requested by the server; 0 if it requests none
}

func (p *transientError) Error() string { return p.err.Error() }
func (p *transientError) Unwrap() error { return p.err }

var errRedirects = errors.New("the server redirects the request, which an API server never does")

// newClient returns a client of one server over TLS that does not follow redirects. It pings an
// idle connection, as client-go does (readIdleTimeoutSeconds and pingTimeoutSeconds of
// apimachinery/pkg/util/net), because a watch may be idle for a long time.
func newClient(server string, tlsConfig *tls.Config, token token) (*Client, error) {
	u, err := url.Parse(server)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("the API server's address is not https://HOST[:PORT]")
	}
	tlsConfig.MinVersion = tls.VersionTLS12
	// client-go ignores a user and a query too. Errors name the address, and these may be secret.
	address := url.URL{Scheme: u.Scheme, Host: u.Host, Path: strings.TrimSuffix(u.Path, "/")}
	c := NewClient(address.String(), &http.Transport{
		TLSClientConfig: tlsConfig, Proxy: http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second}).DialContext, // TCP's own timeout is two minutes
		TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: 20 * time.Second, ForceAttemptHTTP2: true,
		HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	})
	c.token = token
	return c, nil
}

// NewClient returns a client of a server without credentials.
func NewClient(server string, transport http.RoundTripper) *Client {
	return &Client{server: server, http: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return errRedirects },
	}}
}

// maxAnswer limits a response that holds one object or none: more than etcd stores for one object.
const maxAnswer = 4 << 20

// Bounded returns a reader that fails after limit bytes, and names the limit. io.LimitReader would end there,
// and a cut response would look like a broken one.
func Bounded(r io.Reader, limit int64) io.Reader {
	return &boundedReader{io.LimitedReader{R: r, N: limit + 1}, limit}
}

type boundedReader struct {
	io.LimitedReader
	limit int64
}

func (b *boundedReader) Read(p []byte) (int, error) {
	n, err := b.LimitedReader.Read(p)
	if b.N == 0 {
		return 0, fmt.Errorf("the response is larger than %d MiB", b.limit>>20)
	}
	return n, err
}

// serviceAccount is the directory of a Pod's credentials.
const serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount/"

// InPod reports whether this process runs in a Pod with access to its API server.
func InPod() bool { return os.Getenv("KUBERNETES_SERVICE_HOST") != "" }

// InCluster returns a client of the API server from inside a Pod.
func InCluster() (*Client, error) {
	addr, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if addr == "" || port == "" {
		return nil, errors.New("not in a Pod: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set; use --kubeconfig")
	}
	if strings.Contains(addr, ":") {
		addr = "[" + addr + "]"
	}
	authority, err := file.Read(serviceAccount+"ca.crt", maxConfig)
	if err != nil {
		return nil, fmt.Errorf("reading the service account: %w", err)
	}
	pool, err := certPool(authority, serviceAccount+"ca.crt")
	if err != nil {
		return nil, err
	}
	return newClient("https://"+addr+":"+port, &tls.Config{RootCAs: pool}, tokenFile(serviceAccount+"token"))
}

// tokenFile reads the token at every use, because kubelet renews it.
func tokenFile(name string) token {
	return func(context.Context) (string, error) {
		b, err := file.Read(name, maxConfig)
		if err != nil {
			return "", fmt.Errorf("reading the token: %w", err)
		}
		return strings.TrimSpace(string(b)), nil
	}
}
