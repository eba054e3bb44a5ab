package kube_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/audit"
	"nodegate/internal/kube"
	"nodegate/internal/require"
)

// node is an API server with one Node, which records the requests.
func node(t *testing.T, conditions string) (s *httptest.Server, requests *[]string) {
	t.Helper()
	requests = &[]string{}
	s = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		*requests = append(*requests, r.Method+" "+r.URL.Path+" "+r.Header.Get("Content-Type")+" "+string(body))
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, `{"status": {"conditions": [`+conditions+`]}}`)
		}
	}))
	t.Cleanup(s.Close)
	return s, requests
}

var fits = kube.Condition{Type: "NodegatePassed", Status: "True", Reason: "Passed", Message: "every requirement of the policy passes"}

func publish(t *testing.T, text string) error {
	t.Helper()
	return kube.Publish(t.Context(), nil, kube.Publication{Condition: fits, Kubeconfig: kubeconfig(t, text), Node: "n"},
		func(line string) { t.Error(line) })
}

// TestPublish: a status change is a patch of the one condition, and an Event. SECURITY.md: api.
func TestPublish(t *testing.T) {
	s, requests := node(t, `{"type": "Ready", "status": "True"}, {"type": "NodegatePassed", "status": "False",
		"lastTransitionTime": "2026-01-02T03:04:05Z"}`)
	require.NoError(t, publish(t, forServer(s, "    token: secret\n")))
	var begin []string
	for _, r := range *requests {
		begin = append(begin, strings.Join(strings.Fields(r)[:min(3, len(strings.Fields(r)))], " "))
	}
	want := []string{"GET /api/v1/nodes/n", "PATCH /api/v1/nodes/n/status application/strategic-merge-patch+json",
		"POST /api/v1/namespaces/default/events application/json"}
	require.True(t, slices.Equal(begin, want), "got %q, want %q", begin, want)
	var patch struct {
		Status struct {
			Conditions []struct{ Type, Status, Reason, LastHeartbeatTime, LastTransitionTime string }
		}
	}
	_, body, _ := strings.Cut((*requests)[1], "json ")
	require.NoError(t, json.Unmarshal([]byte(body), &patch))
	c := patch.Status.Conditions
	assert.True(t, len(c) == 1 && c[0].Status == "True" && c[0].Reason == "Passed" && c[0].LastTransitionTime == c[0].LastHeartbeatTime,
		"got %s", body)
}

// TestPublishRestarted: a restarted process keeps the time of the last transition and creates no Event.
func TestPublishRestarted(t *testing.T) {
	s, requests := node(t, `{"type": "NodegatePassed", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z"}`)
	require.NoError(t, publish(t, forServer(s, "    token: secret\n")))
	assert.True(t, len(*requests) == 2 && strings.Contains((*requests)[1], `"lastTransitionTime":"2026-01-02T03:04:05Z"`),
		"got %q", *requests)
}

// TestPublishBlind: a node's credentials are not sent to a server whose certificate is not verified. SECURITY.md: api.
func TestPublishBlind(t *testing.T) {
	s, requests := node(t, "")
	text := strings.Replace(forServer(s, "    token: secret\n"), "certificate-authority-data", "insecure-skip-tls-verify: true\n    x", 1)
	if err := publish(t, text); err == nil || !strings.Contains(err.Error(), "insecure-skip-tls-verify") || len(*requests) > 0 {
		t.Errorf("got %v, %q", err, *requests)
	}
	api, err := audit.Truth{Source: kube.Source{Kubeconfig: kubeconfig(t, text)}}.Server()
	assert.True(t, err == nil && api.Unverified(), "not reported as unverified: %v, %v", api, err)
}
