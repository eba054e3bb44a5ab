package kube_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"nodegate/internal/assert"
	"nodegate/internal/audit"
	"nodegate/internal/input"
	"nodegate/internal/kube"
	"nodegate/internal/require"
)

// plugin acts as a credential plugin, and stores its input.
type plugin struct {
	says  func(run int) string
	runs  int
	asked []string // input of the last run: command, arguments, variables
}

func (p *plugin) run(_ context.Context, _, command string, args, env []string) ([]byte, error) {
	p.runs++
	p.asked = slices.Concat([]string{command}, args, env)
	text := p.says(p.runs)
	if text == "" {
		return nil, errors.New("exit status 1: no role")
	}
	return []byte(text), nil
}

// says returns an ExecCredential.
func says(version string, status map[string]any) string {
	text, err := json.Marshal(map[string]any{"apiVersion": "client.authentication.k8s.io/" + version, "kind": "ExecCredential",
		"status": status})
	if err != nil {
		panic(err)
	}
	return string(text)
}

// forPlugin returns a kubeconfig whose user has an exec block of one line.
func forPlugin(s *httptest.Server, block string) string {
	return forServer(s, "    exec: {"+block+"}\n")
}

const anExec = `apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: aws, args: [eks, get-token], env: [{name: ` +
	`A, value: b c}]`

func listWith(t *testing.T, plugins *kube.Plugins, text string) error {
	t.Helper()
	api, err := audit.Truth{Source: kube.Source{Kubeconfig: kubeconfig(t, text), Plugins: plugins}}.Server()
	if err == nil {
		_, err = api.List(t.Context(), false)
	}
	return err
}

// TestPluginCache: a token with an expiry time is cached until then, one without an expiry time is
// cached for one client, and one that the API server rejects is dropped.
func TestPluginCache(t *testing.T) {
	expiring := func(in time.Duration) map[string]any {
		return map[string]any{"token": "secret", "expirationTimestamp": time.Now().Add(in).UTC().Format(time.RFC3339)}
	}
	for _, c := range []struct {
		what   string
		status map[string]any
		runs   int // for two clients with two requests each
	}{
		{"for an hour", expiring(time.Hour), 1},
		{"for five seconds", expiring(5 * time.Second), 4},
		{"without an expiry time", map[string]any{"token": "secret"}, 2},
	} {
		p := &plugin{says: func(int) string { return says("v1", c.status) }}
		plugins, text := kube.NewPlugins(p.run), forPlugin(server(t), anExec)
		name := kubeconfig(t, text)
		for range 2 {
			api, err := audit.Truth{Source: kube.Source{Kubeconfig: name, Plugins: plugins}}.Server()
			if err == nil {
				_, err = api.List(t.Context(), false)
			}
			require.NoError(t, err, "%s", c.what)
		}
		assert.Equal(t, p.runs, c.runs, "%s", c.what)
		want := []string{"aws", "eks", "get-token", "A=b c"}
		assert.True(t, slices.Equal(p.asked[:4], want) && strings.HasPrefix(p.asked[4], "KUBERNETES_EXEC_INFO={"), "input %q", p.asked)
	}
	p := &plugin{says: func(run int) string {
		return says("v1", map[string]any{"token": "t" + string(rune('0'+run)), "expirationTimestamp": "2999-01-02T03:04:05Z"})
	}}
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer s.Close()
	plugins, name := kube.NewPlugins(p.run), kubeconfig(t, forPlugin(s, anExec))
	for range 2 {
		err := kube.Publish(t.Context(), p.run, kube.Publication{Condition: fits, Kubeconfig: name, Node: "n"}, nil)
		assert.True(t, err != nil, "refused, but written")
		api, _ := audit.Truth{Source: kube.Source{Kubeconfig: name, Plugins: plugins}}.Server()
		_, _ = api.List(t.Context(), false) // refused
	}
	assert.Equal(t, p.runs, 4)
}

// TestPluginClusterInfo: a plugin receives the cluster's data if the kubeconfig requests it.
func TestPluginClusterInfo(t *testing.T) {
	p := &plugin{says: func(int) string { return says("v1beta1", map[string]any{"token": "secret"}) }}
	s := server(t)
	text := strings.Replace(forPlugin(s, "apiVersion: client.authentication.k8s.io/v1beta1, command: ./bin/plugin, provideClusterInfo: true"),
		"    server:", "    extensions: [{name: client.authentication.k8s.io/exec, extension: {audience: mine}}]\n    server:", 1)
	name := kubeconfig(t, text)
	api, err := audit.Truth{Source: kube.Source{Kubeconfig: name, Plugins: kube.NewPlugins(p.run)}}.Server()
	require.NoError(t, err)
	_, err = api.List(t.Context(), false)
	require.NoError(t, err)
	var told struct {
		APIVersion, Kind string
		Spec             struct {
			Interactive *bool
			Cluster     struct {
				Server    string
				Authority []byte `json:"certificate-authority-data"`
				Config    map[string]string
			}
		}
	}
	require.NoError(t, json.Unmarshal([]byte(strings.TrimPrefix(p.asked[1], "KUBERNETES_EXEC_INFO=")), &told))
	in := told.Spec.Cluster
	if told.APIVersion != "client.authentication.k8s.io/v1beta1" || told.Spec.Interactive == nil || *told.Spec.Interactive ||
		in.Server != s.URL ||
		!bytes.HasPrefix(in.Authority, []byte("-----BEGIN CERT")) || in.Config["audience"] != "mine" {
		t.Errorf("received %q", p.asked[1])
	}
	assert.Equal(t, p.asked[0], filepath.Join(filepath.Dir(name), "bin/plugin"), "runs")
}

// TestPluginCertificate: a plugin may print a certificate instead of a token.
func TestPluginCertificate(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "me"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	block := func(kind string, b []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}))
	}
	p := &plugin{says: func(int) string {
		return says("v1", map[string]any{"clientCertificateData": block("CERTIFICATE", der), "clientKeyData": block("PRIVATE KEY", private)})
	}}
	var who, header string
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, header = r.TLS.PeerCertificates[0].Subject.CommonName, r.Header.Get("Authorization")
		_, _ = io.WriteString(w, "{}")
	}))
	s.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	s.StartTLS()
	defer s.Close()
	_ = listWith(t, kube.NewPlugins(p.run), forPlugin(s, anExec)) // the lists are empty
	assert.True(t, who == "me" && header == "" && p.runs == 1, "the server sees %q and %q after %d runs", who, header, p.runs)
}

// TestPluginRefused: each error names the fault, and no error contains a possible secret.
func TestPluginRefused(t *testing.T) {
	good := says("v1", map[string]any{"token": "secret"})
	for _, c := range []struct{ what, block, says, want string }{
		{"no command", "apiVersion: client.authentication.k8s.io/v1", good, "exec has no command"},
		{"an old version", strings.Replace(anExec, "/v1", "/v1alpha1", 1), good, "exec has an unknown apiVersion; known versions: "},
		{"a terminal", strings.Replace(anExec, "Never", "Always", 1), good, "needs a terminal"},
		{"fails", anExec, "", "credential plugin aws: exit status 1: no role"},
		{"is absent", anExec + ", installHint: install it", "", "no role; hint in the kubeconfig: install it"},
		{"no JSON", anExec, "secret", "its output is not an ExecCredential"},
		{"another version", anExec, says("v1beta1", map[string]any{"token": "secret"}),
			"another apiVersion than client.authentication.k8s.io/v1, which the kubeconfig requires"},
		{"nothing", anExec, says("v1", map[string]any{}), "neither a token nor a certificate"},
		{"expired", anExec, says("v1", map[string]any{"token": "secret", "expirationTimestamp": "2001-02-03T04:05:06Z"}),
			"expired at 2001-02-03T04:05:06Z"},
	} {
		p := &plugin{says: func(int) string { return c.says }}
		err := listWith(t, kube.NewPlugins(p.run), forPlugin(server(t), c.block))
		assert.True(t, err != nil && strings.Contains(err.Error(), c.want) && !strings.Contains(err.Error(), "secret"),
			"%s: got %v, want %q", c.what, err, c.want)
		assert.True(t, p.runs <= 0 || errors.Is(err, input.ErrUnknown), "%s: not input.ErrUnknown: %v", c.what, err)
	}
}

// TestPublishSelf: if neither the policy nor a certificate names the node, the API server does.
func TestPublishSelf(t *testing.T) {
	for user, want := range map[string]string{"system:node:n7": "PATCH /api/v1/nodes/n7/status", "me": ""} {
		var requests []string
		s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			requests = append(requests, r.Method+" "+r.URL.Path)
			if strings.HasSuffix(r.URL.Path, "/selfsubjectreviews") {
				_, _ = io.WriteString(w, `{"status": {"userInfo": {"username": "`+user+`"}}}`)
				return
			}
			_, _ = io.WriteString(w, "{}")
		}))
		name := kubeconfig(t, forServer(s, "    token: secret\n"))
		err := kube.Publish(t.Context(), nil, kube.Publication{Condition: fits, Kubeconfig: name}, func(line string) { t.Error(line) })
		s.Close()
		if want == "" && (err == nil || !strings.Contains(err.Error(), "do not belong to a node")) || want != "" && !slices.Contains(requests, want) {
			t.Errorf("%s: %v, %q", user, err, requests)
		}
	}
}
