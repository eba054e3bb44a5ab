package kubeproxy

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestPageRedirect: the page of a program on this node does not lead the query to another server.
func TestPageRedirect(t *testing.T) {
	asked := false
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer elsewhere.Close()
	here := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusFound))
	defer here.Close()
	_, status, err := Page(t.Context(), here.URL)
	if err != nil || status != http.StatusFound || asked {
		t.Errorf("status %d, %v; the other server was queried: %t", status, err, asked)
	}
}

// TestEndlessPage: a page that never ends cannot fill the memory. The error names the limit.
func TestEndlessPage(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var err error
		for part := bytes.Repeat([]byte("a"), 1<<20); err == nil; {
			_, err = w.Write(part)
		}
	}))
	defer s.Close()
	if _, _, err := Page(t.Context(), s.URL); err == nil || !strings.Contains(err.Error(), "the response is larger than 16 MiB") {
		t.Error(err)
	}
}

func TestPage(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, "not well")
	}))
	body, status, err := Page(t.Context(), s.URL)
	if err != nil || status != http.StatusServiceUnavailable || string(body) != "not well" {
		t.Errorf("%q, %d, %v", body, status, err)
	}
	s.Close()
	if _, _, err := Page(t.Context(), s.URL); err == nil || !strings.Contains(err.Error(), "querying "+s.URL) {
		t.Errorf("a closed port: %v", err)
	}
}
