package kubelet_test

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/host"
	"nodegate/internal/require"
)

// TestAPI queries a real server over TLS. SECURITY.md: api.
func TestAPI(t *testing.T) {
	status, asked := http.StatusCreated, ""
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Header.Get("Authorization")
		if status == http.StatusTemporaryRedirect {
			w.Header().Set("Location", "https://127.0.0.1:1/")
		}
		answer := `{"status": {"userInfo": {"username": "system:node:n1"}}}`
		if status == http.StatusAccepted {
			answer = answer[:20]
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
	}))
	defer server.Close()
	authority := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	name := filepath.Join(t.TempDir(), "kubelet.conf")
	inspect := func(cluster string) checks.Result {
		text := "current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {token: secret}}]\n" +
			"clusters: [{name: c, cluster: {" + cluster + "}}]\n"
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		asked = ""
		h := late("--kubeconfig="+name, "", map[string]string{name: text}).Host()
		h.Prove = func(context.Context, *host.Host, host.Probe) (host.Proof, error) { return host.Proof{}, nil } // packets can be sent
		return checkstest.On(t.Context(), t, h, checks.Boot, "kubelet.api", "")
	}
	trusted := "server: \"" + server.URL + "\", certificate-authority-data: " + authority
	for _, c := range []struct {
		what, cluster, want string
		status              int
		sends               bool
	}{
		{"accepted", trusted, "pass", http.StatusCreated, true},
		{"an old API server", trusted, "pass", http.StatusNotFound, true},
		{"refused", trusted, "fail", http.StatusUnauthorized, true},
		{"starting", trusted, "unknown", http.StatusServiceUnavailable, true},
		{"redirects", trusted, "unknown", http.StatusTemporaryRedirect, true},
		{"redirects nowhere", trusted, "unknown", http.StatusFound, true},
		{"a part of an answer", trusted, "unknown", http.StatusAccepted, true},
		{"another authority", "server: \"" + server.URL + "\"", "fail", http.StatusCreated, false},
		{"not verified", "server: \"" + server.URL + "\", insecure-skip-tls-verify: true", "skipped", http.StatusCreated, false},
		{"no TLS", "server: \"http://127.0.0.1:1\"", "unknown", http.StatusCreated, false},
		{"no answer", "server: \"https://127.0.0.1:1\"", "unknown", http.StatusCreated, false},
	} {
		status = c.status
		if r := inspect(c.cluster); r.Verdict.String() != c.want || (asked != "") != c.sends {
			t.Errorf("%s: %v (%v), want %s; the server got %q", c.what, r.Verdict, r.Err, c.want, asked)
		}
	}
	h := late("--kubeconfig="+name, "", map[string]string{name: "x"}).Host()
	h.Prove = nil
	if r := checkstest.On(t.Context(), t, h, checks.Boot, "kubelet.api", ""); r.Verdict.String() != "skipped" {
		t.Errorf("without a network: %v", r.Verdict)
	}
}
