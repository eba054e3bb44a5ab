package kube_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"nodegate/internal/assert"
	"nodegate/internal/audit"
	"nodegate/internal/audit/proxy"
	"nodegate/internal/kube"
	"nodegate/internal/require"
)

// motion is a TLS API server with one Service and one EndpointSlice. Version n has the endpoint
// 10.0.0.n.
type motion struct {
	latest  atomic.Int32 // the current version
	expired atomic.Bool  // the first watch of slices receives "version expired"
	asked   atomic.Int32 // number of watches of slices
}

func (m *motion) slice(version int32) string {
	return fmt.Sprintf(`{"kind": "EndpointSlice", "addressType": "IPv4", "metadata": {"namespace": "prod", "name": "np-1",
		"resourceVersion": "%d", "labels": {"kubernetes.io/service-name": "np"}}, "ports": [{"port": 80}],
		"endpoints": [{"addresses": ["10.0.0.%d"], "conditions": {"ready": true}}]}`, version, version)
}

func (m *motion) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	version := m.latest.Load()
	isSlices := strings.Contains(r.URL.Path, "endpointslices")
	item := `{"kind": "Service", "metadata": {"namespace": "prod", "name": "np"}, "spec": {"clusterIP": "10.96.0.7", "ports": [{"port": 80}]}}`
	if isSlices {
		item = m.slice(version)
	}
	switch {
	case r.URL.Query().Get("watch") == "":
		fmt.Fprintf(w, `{"metadata": {"resourceVersion": "%d"}, "items": [%s]}`, version, item)
	case !isSlices:
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	case m.asked.Add(1) == 1 && m.expired.Load():
		m.latest.Add(1)
		_, _ = io.WriteString(w, `{"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}}`)
	default:
		// Each watch sends one event and a bookmark and ends, as when a server restarts.
		var from int32
		_, _ = fmt.Sscan(r.URL.Query().Get("resourceVersion"), &from)
		if from >= 5 {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		m.latest.Store(from + 1)
		fmt.Fprintf(w, `{"type": "MODIFIED", "object": %s}`, m.slice(from+1))
		fmt.Fprintf(w, `{"type": "BOOKMARK", "object": {"kind": "EndpointSlice", "metadata": {"resourceVersion": "%d"}}}`, from+1)
	}
}

// TestFollow: no version is missed between list and watch, nor between two watches. If the server
// no longer has a version, Follow lists again.
func TestFollow(t *testing.T) {
	for _, expired := range []bool{false, true} {
		m := &motion{}
		m.latest.Store(2)
		m.expired.Store(expired)
		s := httptest.NewTLSServer(m)
		t.Cleanup(s.Close)
		api, err := audit.Truth{Source: kube.Source{Kubeconfig: kubeconfig(t, forServer(s, "    token: secret\n"))}}.Server()
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		v, err := api.List(ctx, false)
		require.NoError(t, err)
		port := proxy.ServicePort{Name: "prod/np", Family: "ip"}
		has := func(n int) bool {
			rep := proxy.Judgment{Mode: "iptables", Families: map[string]bool{"ip": true}, Services: []proxy.Service{{
				Name: "prod/np", Family: "ip", Protocol: "tcp", ClusterIP: "10.96.0.7", Port: 80,
				Endpoints: []proxy.Endpoint{{Address: fmt.Sprintf("10.0.0.%d:80", n)}}}}}
			return v.Explain(&rep, port, proxy.Options{})
		}
		changes := make(chan proxy.Event)
		ended := make(chan error, 1)
		go func() { ended <- api.Follow(ctx, v, func(c proxy.Event) { changes <- c }) }()
		for range 3 {
			select {
			case c := <-changes:
				v.Apply(c)
			case err := <-ended:
				t.Fatal(err)
			}
		}
		for n := range 8 {
			want := n >= 2 && n <= 5
			assert.True(t, has(n) == want, "expired %v: version %d known: %v, want %v", expired, n, !want, want)
		}
		cancel()
		err = <-ended
		assert.True(t, err == nil || errors.Is(err, context.Canceled), "after cancelling: %v", err)
	}
}

// TestFollowRefused: a watch that is forbidden returns an error.
func TestFollowRefused(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") != "" {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		(&motion{}).ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	api, err := audit.Truth{Source: kube.Source{Kubeconfig: kubeconfig(t, forServer(s, "    token: secret\n"))}}.Server()
	require.NoError(t, err)
	v, err := api.List(t.Context(), false)
	require.NoError(t, err)
	assert.ErrorContains(t, api.Follow(t.Context(), v, func(proxy.Event) {}), "may not list and watch")
}
