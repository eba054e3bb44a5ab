package kube

import (
	"net/http"
	"net/http/httptest"
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
