package kube_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/audit"
	"nodegate/internal/kube"
	"nodegate/internal/require"
)

// TestPod checks the addresses of a Pod in the API, and the error for a Pod without one.
func TestPod(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api/v1/namespaces/prod/pods/web-0":
			_, _ = io.WriteString(w, `{"status": {"hostIP": "192.0.2.7", "podIPs": [{"ip": "10.244.1.7"}, {"ip": "fd00::7"}]}}`)
		case "/api/v1/namespaces/prod/pods/pending":
			_, _ = io.WriteString(w, `{"status": {}}`)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(s.Close)
	api, err := audit.Truth{Source: kube.Source{Kubeconfig: kubeconfig(t, forServer(s, "    token: secret\n"))}}.Server()
	require.NoError(t, err)
	for name, want := range map[string]string{
		"web-0":   "[10.244.1.7 fd00::7] 192.0.2.7 <nil>",
		"pending": "the API lacks an address of Pod prod/pending",
		"gone":    "reading Pod prod/gone: ",
	} {
		p, err := api.Pod(t.Context(), "prod", name)
		assert.Contains(t, fmt.Sprint(p.Addresses, p.Host, err), want, "%s", name)
	}
}
