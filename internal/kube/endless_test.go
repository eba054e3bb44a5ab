package kube

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"nodegate/internal/assert"
)

// TestEndlessAnswers: a server that never ends its response cannot fill the memory. The error names the limit. SECURITY.md: bounded.
func TestEndlessAnswers(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.WriteString(w, "{\"items\": [{\"a\": \"")
		for part := bytes.Repeat([]byte("a"), 64<<10); err == nil; {
			_, err = w.Write(part)
		}
	}))
	defer s.Close()
	c := &Client{server: s.URL, http: s.Client()}
	for what, query := range map[string]func() error{
		"an event of more than 8 MiB": func() error {
			return c.watchOnce(t.Context(), "/", "1", nil)
		},
		"GET /api/v1/nodes/n: the response is larger than 4 MiB": func() error {
			_, _, err := c.readCondition(t.Context(), "n", "Ready")
			return err
		},
		"POST /apis/authentication.k8s.io/v1/selfsubjectreviews: the response is larger than 4 MiB": func() error {
			_, err := c.ownNode(t.Context())
			return err
		},
		"POST /endless: the response is larger than 4 MiB": func() error {
			return c.sendJSON(t.Context(), http.MethodPost, "/endless", "", nil, nil)
		},
	} {
		assert.ErrorContains(t, query(), what)
	}
}
