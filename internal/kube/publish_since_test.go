package kube

import (
	"encoding/base64"
	encoding "encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"nodegate/internal/assert"
)

// TestPublishSince: a status that the API server refused does not count. The next write of the
// current status keeps the time of its last transition.
func TestPublishSince(t *testing.T) {
	const since = "2026-01-02T03:04:05Z"
	refused, last := 0, ""
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch {
		case r.Method == http.MethodGet:
			fmt.Fprintf(w, `{"status": {"conditions": [{"type": "NodegatePassed", "status": "True", "lastTransitionTime": %q}]}}`, since)
		case r.Method == http.MethodPatch && strings.Contains(string(body), `"status":"False"`):
			refused++
			w.WriteHeader(http.StatusServiceUnavailable)
		case r.Method == http.MethodPatch:
			last = string(body)
		}
	}))
	defer s.Close()
	authority := encoding.EncodeToMemory(&encoding.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	name := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(name, fmt.Appendf(nil, `{"current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
		"clusters": [{"name": "c", "cluster": {"server": %q, "certificate-authority-data": %q}}],
		"users": [{"name": "u", "user": {"token": "secret"}}]}`, s.URL, base64.StdEncoding.EncodeToString(authority)), 0o600); err != nil {
		t.Fatal(err)
	}
	p := NewPublisher(nil, func(string) {})
	for _, status := range []string{"True", "False", "True"} {
		want := publication(status, "x")
		want.Kubeconfig, want.Node = name, "n"
		p.at, p.retry = time.Time{}, time.Time{} // make the write due
		p.writeDue(t.Context(), want)
	}
	assert.True(t, refused == 1 && strings.Contains(last, `"lastTransitionTime":"`+since+`"`),
		"%d writes refused, the last one is %s", refused, last)
	want := publication("Unknown", "")
	p.written.Checked = time.Now().Add(-7 * time.Second)
	err := p.write(t.Context(), p.written)
	assert.True(t, err == nil && strings.Contains(last, `"message":"x (checked 7s ago)"`), "%v: %s", err, last)
	if err := p.Last(t.Context(), want.Condition); err != nil || !strings.Contains(last, `"status":"Unknown"`) || strings.Contains(last, "ago") {
		t.Errorf("the last write: %v: %s", err, last)
	}
	last = ""
	err = NewPublisher(nil, nil).Last(t.Context(), want.Condition)
	assert.True(t, err == nil && last == "", "nothing was published before, but %v: %s", err, last)
}
