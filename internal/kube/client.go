// Package kube reads from a Kubernetes API server what the audit compares a node's
// rules with, and from kube-proxy what it says about itself. It writes one condition of one Node, where a policy asks for it.
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

// token returns what proves who asks, "" where a certificate does.
type token func(context.Context) (string, error)

// Client reads from one API server.
type Client struct {
	server  string
	http    *http.Client
	token   token  // nil: the certificate is enough
	refused func() // is told that the API server does not know the credentials; may be nil
	node    string // whose credentials these are, where they are a node's
	blind   bool   // the server's certificate is not verified
}

// do sends one request. kind is the body's type. The caller closes the answer's body.
func (c *Client) do(ctx context.Context, method, path, kind string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.server+path, body)
	if err != nil {
		return nil, fmt.Errorf("asking the API server: %w", err)
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
		err = fmt.Errorf("asking the API server: %w", err)
		var stranger *tls.CertificateVerificationError
		if errors.As(err, &stranger) || errors.Is(err, errRedirects) {
			return nil, err
		}
		return nil, &passing{err: err}
	}
	if resp.StatusCode == http.StatusUnauthorized && c.refused != nil {
		c.refused()
	}
	return resp, nil
}

// get passes the answer to one request to read, as it arrives.
func (c *Client) get(ctx context.Context, path string, read func(io.Reader) error) error {
	resp, err := c.do(ctx, http.MethodGet, path, "", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
		return read(resp.Body)
	case http.StatusGone:
		return errExpired
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("asking the API server: %s: %s; these credentials may not list and watch it. kube-proxy's own may",
			resp.Request.URL.Path, resp.Status)
	}
	err = fmt.Errorf("asking the API server: %s: %s", resp.Request.URL.Path, resp.Status)
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500 {
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After")) // a date, which HTTP allows too, no API server sends
		return &passing{err, time.Duration(seconds) * time.Second}
	}
	return err
}

// passing is an error that may be over when the API server is asked again: it has too much to do, begins or ends, or cannot be reached.
type passing struct {
	err   error
	after time.Duration // it asks not to be asked before; 0: it does not say
}

func (p *passing) Error() string { return p.err.Error() }
func (p *passing) Unwrap() error { return p.err }

var errRedirects = errors.New("the API server redirects, which an API server does not do")

// newClient returns a client of one server, by TLS, that follows no redirects. A connection on which nothing comes is asked for a sign of
// life, as client-go does (readIdleTimeoutSeconds and pingTimeoutSeconds of apimachinery/pkg/util/net): watches are silent anyway.
func newClient(server string, tlsConfig *tls.Config, token token) (*Client, error) {
	u, err := url.Parse(server)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("the API server's address %q is not https://HOST[:PORT]", server)
	}
	tlsConfig.MinVersion = tls.VersionTLS12
	return &Client{server: strings.TrimSuffix(server, "/"), token: token, http: &http.Client{
		Transport: &http.Transport{
			TLSClientConfig: tlsConfig, Proxy: http.ProxyFromEnvironment,
			DialContext:         (&net.Dialer{Timeout: 10 * time.Second}).DialContext, // TCP itself tries for two minutes
			TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: 20 * time.Second, ForceAttemptHTTP2: true,
			HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return errRedirects
		},
	}}, nil
}

// Page reads one small page of a program on this node, kube-proxy's healthz or
// metrics. It returns the body, at most 16 MiB, and the status.
func Page(ctx context.Context, address string) (body []byte, status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, 0, fmt.Errorf("asking %s: %w", address, err)
	}
	client := &http.Client{Transport: &http.Transport{Proxy: nil, DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		var wrapped *url.Error
		if errors.As(err, &wrapped) {
			err = wrapped.Err
		}
		return nil, 0, fmt.Errorf("asking %s: %w", address, err)
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	return body, resp.StatusCode, err
}

// serviceAccount is where a Pod finds its credentials.
const serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount/"

// InPod reports whether this process runs in a Pod that knows its API server.
func InPod() bool { return os.Getenv("KUBERNETES_SERVICE_HOST") != "" }

// InCluster returns a client of the API server as a Pod sees it.
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

// tokenFile reads the token at every use: kubelet renews it.
func tokenFile(name string) token {
	return func(context.Context) (string, error) {
		b, err := file.Read(name, maxConfig)
		if err != nil {
			return "", fmt.Errorf("reading the token: %w", err)
		}
		return strings.TrimSpace(string(b)), nil
	}
}
