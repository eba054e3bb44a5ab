package kube_test

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nodegate/internal/kube"
)

// server is an API server that knows one token and answers with paths.
func server(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "Bearer secret":
			http.Error(w, "no", http.StatusForbidden)
		case r.Method != http.MethodGet || r.URL.Query().Get("resourceVersion") != "0":
			http.Error(w, "not a cheap read", http.StatusBadRequest)
		default:
			_, _ = io.WriteString(w, r.URL.Path)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func kubeconfig(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
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
	if err := os.WriteFile(tokenFile, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, user := range []string{"    token: secret\n", "    tokenFile: " + tokenFile + "\n"} {
		c, err := kube.FromKubeconfig(kubeconfig(t, forServer(s, user)))
		if err != nil {
			t.Fatal(err)
		}
		for want, list := range map[string]func(context.Context, func(io.Reader) error) error{
			"/apis/discovery.k8s.io/v1/endpointslices": c.EndpointSlices,
			"/api/v1/services":                         c.Services,
		} {
			var got []byte
			err := list(t.Context(), func(r io.Reader) (err error) { got, err = io.ReadAll(r); return err })
			if err != nil || string(got) != want {
				t.Errorf("%q, %v; want %q", got, err, want)
			}
		}
	}
}

func TestRefused(t *testing.T) {
	s := server(t)
	c, err := kube.FromKubeconfig(kubeconfig(t, forServer(s, "    token: wrong\n")))
	if err != nil {
		t.Fatal(err)
	}
	read := func(io.Reader) error { t.Error("an answer that is none is read"); return nil }
	if err := c.Services(t.Context(), read); err == nil || !strings.Contains(err.Error(),
		"/api/v1/services: 403 Forbidden; these credentials") {
		t.Errorf("a refusal: %v", err)
	}
	// Another server's certificate is rejected.
	text := strings.Replace(forServer(s, "    token: secret\n"), "certificate-authority-data",
		"tls-server-name: elsewhere.example\n    certificate-authority-data", 1)
	if c, err = kube.FromKubeconfig(kubeconfig(t, text)); err != nil {
		t.Fatal(err)
	}
	if err := c.Services(t.Context(), read); err == nil || !strings.Contains(err.Error(), "certificate is valid for") {
		t.Errorf("a foreign certificate: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Services(ended, read); !errors.Is(err, context.Canceled) {
		t.Errorf("after the deadline: %v", err)
	}
}

func TestBadKubeconfig(t *testing.T) {
	s := server(t)
	good := forServer(s, "    token: secret\n")
	for want, text := range map[string]string{
		"line 2":                                   "a: b\n\tc: d\n",
		`no context "here"`:                        strings.Replace(good, "name: here", "name: there", 1),
		`cluster "c" has no server`:                strings.Replace(good, "- name: c\n", "- name: d\n", 1),
		`no user "u"`:                              strings.Replace(good, "- name: u\n", "- name: v\n", 1),
		"is not https://":                          strings.Replace(good, s.URL, "http://127.0.0.1:1", 1),
		"inline data is not base64":                strings.Replace(good, "authority-data: ", "authority-data: '?'\n#", 1),
		"certificate-authority contains no":        strings.Replace(good, "authority-data: ", "authority-data: aGVsbG8=\n#", 1),
		"no such file":                             strings.Replace(good, "authority-data: ", "authority: nosuch.crt\n#", 1),
		"uses a credential plugin, which nodegate": strings.Replace(good, "token: secret", "exec: {command: aws}", 1),
		"it has no certificate and no token":       strings.Replace(good, "token: secret", "username: me", 1),
		"client certificate: ":                     strings.Replace(good, "token: secret", "client-certificate-data: aGVsbG8=", 1),
	} {
		name := kubeconfig(t, text)
		_, err := kube.FromKubeconfig(name)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), name) {
			t.Errorf("want an error with %q and the file, got %v", want, err)
		}
	}
	if _, err := kube.FromKubeconfig("nosuch"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if _, err := kube.InCluster(); err == nil || !strings.Contains(err.Error(), "not in a Pod") {
		t.Errorf("outside a Pod: %v", err)
	}
}

func TestPage(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, "not well")
	}))
	body, status, err := kube.Page(t.Context(), s.URL)
	if err != nil || status != http.StatusServiceUnavailable || string(body) != "not well" {
		t.Errorf("%q, %d, %v", body, status, err)
	}
	s.Close()
	if _, _, err := kube.Page(t.Context(), s.URL); err == nil || !strings.Contains(err.Error(), "asking "+s.URL) {
		t.Errorf("a closed port: %v", err)
	}
}
