package kube_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"nodegate/internal/assert"
	"nodegate/internal/audit"
	"nodegate/internal/audit/kubeproxy"
	"nodegate/internal/input"
	"nodegate/internal/kube"
	"nodegate/internal/require"
	"nodegate/internal/verdict"
)

// server is an API server that accepts one token and responds with paths.
func server(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "Bearer secret":
			http.Error(w, "no", http.StatusForbidden)
		case r.Method != http.MethodGet || r.URL.Query().Get("resourceVersion") != "0":
			http.Error(w, "not a cheap read", http.StatusBadRequest)
		case r.URL.Path == "/api/v1/services":
			_, _ = io.WriteString(w, `{"metadata": {"resourceVersion": "7"}, "items": [{"spec": {"ports": [{}]}}]}`)
		case r.URL.Path == "/apis/discovery.k8s.io/v1/endpointslices":
			_, _ = io.WriteString(w, `{"metadata": {"resourceVersion": "8"}, "items": [{"addressType": "IPv4"}]}`)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func kubeconfig(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

// forServer returns a kubeconfig for s with the given lines for its user.
func forServer(s *httptest.Server, user string) string {
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return `apiVersion: v1
kind: Config
current-context: here
contexts:
- name: elsewhere
  context: {cluster: none, user: none}
- name: here
  context: {cluster: c, user: u}
clusters:
- name: c
  cluster:
    server: ` + s.URL + `
    certificate-authority-data: ` + base64.StdEncoding.EncodeToString(authority) + `
users:
- name: u
  user:
` + user
}

func TestLists(t *testing.T) {
	s := server(t)
	tokenFile := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(tokenFile, []byte("secret\n"), 0o600))
	for _, user := range []string{"    token: secret\n", "    tokenFile: " + tokenFile + "\n"} {
		api, err := audit.Truth{Source: kube.Source{Kubeconfig: kubeconfig(t, forServer(s, user))}}.Server()
		require.NoError(t, err)
		v, err := api.List(t.Context(), false)
		require.NoError(t, err)
		assert.True(t, v.Services.Version == "7" && v.Endpoints.Version == "8" && v.Services.Count == 1 && v.Endpoints.Slices == 1,
			"%+v, %+v", v.Services, v.Endpoints)
	}
}

func TestRefused(t *testing.T) {
	s := server(t)
	list := func(ctx context.Context, text string) error {
		t.Helper()
		text = strings.Replace(text, s.URL, s.URL+"/?token=S3cret#S3cret", 1)
		api, err := audit.Truth{Source: kube.Source{Kubeconfig: kubeconfig(t, text)}}.Server()
		require.NoError(t, err)
		_, err = api.List(ctx, false)
		assert.True(t, err != nil && !strings.Contains(err.Error(), "S3cret"), "the query of the server's address: %v", err)
		assert.True(t, errors.Is(err, input.ErrUnknown), "%v is not input.ErrUnknown", err)
		f := kubeproxy.Unanswered(err)
		assert.True(t, f.Name == "kubeproxy.truth.unanswered" && f.Verdict == verdict.Unknown, "%+v", f)
		return err
	}
	err := list(t.Context(), forServer(s, "    token: wrong\n"))
	assert.True(t, strings.Contains(err.Error(), "/apis/discovery.k8s.io/v1/endpointslices: 403 Forbidden; these credentials"),
		"a refusal: %v", err)
	// Another server's certificate is rejected.
	text := strings.Replace(forServer(s, "    token: secret\n"), "certificate-authority-data",
		"tls-server-name: elsewhere.example\n    certificate-authority-data", 1)
	err = list(t.Context(), text)
	assert.True(t, strings.Contains(err.Error(), "certificate is valid for"), "another server's certificate: %v", err)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	err = list(ended, forServer(s, "    token: secret\n"))
	assert.True(t, errors.Is(err, context.Canceled), "after the deadline: %v", err)
}

// TestFaultyServer: an API server that redirects, hands out a part of a list, changes its certificate between two requests, or whose name
// is never resolved, gives no list. The error has the place, and no other server gets a request.
func TestFaultyServer(t *testing.T) {
	const slices = `{"metadata": {"resourceVersion": "8"}, "items": [{"addressType": "IPv4"}, {"addressType": "IPv4"}]}`
	elsewhere := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("another server is queried") }))
	defer elsewhere.Close()
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = silent.Close() }()
	before := net.DefaultResolver
	defer func() { net.DefaultResolver = before }()
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", silent.LocalAddr().String())
	}}
	part := func(size int, then func()) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, slices[:size])
			_ = http.NewResponseController(w).Flush()
			then()
		}
	}
	cut := func() { panic(http.ErrAbortHandler) }
	for what, c := range map[string]struct {
		handler http.HandlerFunc
		want    string
	}{
		"redirects":                  {http.RedirectHandler(elsewhere.URL, http.StatusFound).ServeHTTP, "redirects the request"},
		"redirects nowhere":          {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusFound) }, "/endpointslices: 302 Found"},
		"cut in a list":              {part(60, cut), "/endpointslices: reading JSON: unexpected EOF"},
		"cut between two items":      {part(strings.Index(slices, ", {"), cut), "/endpointslices: reading JSON: unexpected EOF"},
		"ends in a list":             {part(60, func() {}), "/endpointslices: line 1: cut off"},
		"ends before the last brace": {part(len(slices)-1, func() {}), "/endpointslices: line 1: cut off"},
		"another certificate":        {part(len(slices), func() {}), "certificate signed by unknown authority"},
		"a name without an answer":   {part(len(slices), func() {}), "deadline exceeded"},
	} {
		s := httptest.NewUnstartedServer(c.handler)
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		s.StartTLS()
		ctx, text := t.Context(), forServer(s, "    token: secret\n")
		switch what {
		case "another certificate":
			s.Config.SetKeepAlivesEnabled(false)
			key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
			require.NoError(t, err)
			same := &x509.Certificate{SerialNumber: big.NewInt(1), IPAddresses: s.Certificate().IPAddresses, NotAfter: s.Certificate().NotAfter}
			der, err := x509.CreateCertificate(rand.Reader, same, same, key.Public(), key)
			require.NoError(t, err)
			later, shaken := tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, 0
			s.TLS.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
				if shaken++; shaken == 1 {
					return nil, nil
				}
				return &tls.Config{Certificates: []tls.Certificate{later}}, nil
			}
		case "a name without an answer":
			text = strings.Replace(text, s.URL, "https://api.example.com:6443", 1)
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
		}
		api, err := audit.Truth{Source: kube.Source{Kubeconfig: kubeconfig(t, text)}}.Server()
		require.NoError(t, err)
		v, err := api.List(ctx, false)
		assert.True(t, v == nil && errors.Is(err, input.ErrUnknown) && strings.Contains(err.Error(), c.want),
			"%s: %v, want %s", what, err, c.want)
		s.Close()
	}
}

func TestBadKubeconfig(t *testing.T) {
	s := server(t)
	good := forServer(s, "    token: secret\n")
	for want, text := range map[string]string{
		"line 2":                                   "a: b\n\tc: d\n",
		"names a context that does not exist":      strings.Replace(good, "name: here", "name: there", 1),
		"names a cluster that does not exist":      strings.Replace(good, "- name: c\n", "- name: d\n", 1),
		"cluster has no server":                    strings.Replace(good, "server: "+s.URL, "server: \"\"", 1),
		"names a user that does not exist":         strings.Replace(good, "- name: u\n", "- name: v\n", 1),
		"is not https://":                          strings.Replace(good, s.URL, "http://127.0.0.1:1", 1),
		"inline data is not base64":                strings.Replace(good, "authority-data: ", "authority-data: '?'\n#", 1),
		"certificate-authority contains no":        strings.Replace(good, "authority-data: ", "authority-data: aGVsbG8=\n#", 1),
		"no such file":                             strings.Replace(good, "authority-data: ", "authority: nosuch.crt\n#", 1),
		"uses an auth-provider, which Kubernetes ": strings.Replace(good, "token: secret", "auth-provider: {name: gcp}", 1),
		"it has neither a certificate nor a token": strings.Replace(good, "token: secret", "username: me", 1),
		"client certificate: ":                     strings.Replace(good, "token: secret", "client-certificate-data: aGVsbG8=", 1),
	} {
		name := kubeconfig(t, text)
		_, err := kube.FromKubeconfig(name, nil)
		assert.True(t, err != nil && strings.Contains(err.Error(), want) && strings.Contains(err.Error(), name),
			"want an error with %q and the file, got %v", want, err)
	}
	_, err := kube.FromKubeconfig("nosuch", nil)
	assert.True(t, errors.Is(err, os.ErrNotExist), "a missing file: %v", err)
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	_, err = kube.InCluster()
	assert.ErrorContains(t, err, "not in a Pod", "outside a Pod")
}
