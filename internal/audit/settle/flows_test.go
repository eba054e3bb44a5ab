package settle_test

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"nodegate/internal/audit/proxy"
	"nodegate/internal/audit/settle"
	"nodegate/internal/require"
)

// listing is an API with one UDP Service whose endpoints may change after a time.
type listing struct {
	first, later string
	after        time.Time
	err          error
}

func (l *listing) Follow(context.Context, *proxy.Versions, func(proxy.Event)) error {
	return nil
}

func (l *listing) List(_ context.Context, latest bool) (*proxy.Versions, error) {
	if latest && l.err != nil {
		return nil, l.err
	}
	endpoint := l.first
	if time.Now().After(l.after) {
		endpoint = l.later
	}
	v := proxy.NewVersions()
	var err, err2 error
	v.Services, err = proxy.LoadServices(strings.NewReader(`{"items": [{"kind": "Service", "metadata": {"namespace": "default", "name": "log"},
		"spec": {"clusterIP": "10.96.0.10", "ports": [{"port": 514, "protocol": "UDP"}]}}]}`))
	v.Endpoints, err2 = proxy.LoadEndpointSlices(strings.NewReader(`{"items": [{"kind": "EndpointSlice", "addressType": "IPv4", "metadata": {
		"namespace": "default", "name": "log-1", "labels": {"kubernetes.io/service-name": "log"}},
		"endpoints": [{"addresses": ["` + endpoint + `"]}], "ports": [{"port": 514, "protocol": "UDP"}]}]}`))
	return v, errors.Join(err, err2)
}

// TestFlows checks that a flow is reported only if it persists, is in use, and its endpoint is
// still missing from the API at the end.
func TestFlows(t *testing.T) {
	const old, current = "10.244.0.1", "10.244.0.2"
	for _, test := range []struct {
		what    string
		to      string
		deleted time.Duration // kube-proxy deletes it after this time; 0: never
		idle    bool
		back    string // endpoint in the API at the end
		err     error
		found   bool
		looks   int // maximum number of looks; 0: any
	}{
		{what: "healthy", to: current, back: current, looks: 1},
		{what: "stale", to: old, back: current, found: true},
		{what: "deleted by kube-proxy", to: old, deleted: 5 * time.Second, back: current, looks: 6},
		{what: "not in use", to: old, idle: true, back: current},
		{what: "the endpoint was new, and the first list old", to: old, back: old},
		{what: "the second list fails", to: old, back: current, err: errors.New("refused")},
	} {
		t.Run(test.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				api := &listing{first: current, later: test.back, after: began.Add(settleTime / 2), err: test.err}
				listed, err := api.List(t.Context(), false)
				require.NoError(t, err)
				looks := 0
				table := func(context.Context) ([]proxy.Flow, error) {
					looks++
					if test.deleted > 0 && time.Since(began) >= test.deleted {
						return nil, nil
					}
					left := 2 * time.Minute
					if test.idle {
						left -= time.Since(began).Truncate(time.Second)
					}
					return []proxy.Flow{{Protocol: "udp", Client: netip.MustParseAddrPort("10.0.0.1:4000"), Left: left,
						To: netip.MustParseAddrPort("10.96.0.10:514"), Endpoint: netip.MustParseAddrPort(test.to + ":514")}}, nil
				}
				found, err := settle.Flows(t.Context(), table, api, listed, settleTime)
				if !errors.Is(err, test.err) {
					t.Errorf("got error %v, want %v", err, test.err)
				}
				if (len(found) > 0) != test.found {
					t.Errorf("got %v", found)
				}
				if test.looks > 0 && looks > test.looks {
					t.Errorf("%d looks, want at most %d", looks, test.looks)
				}
			})
		})
	}
}
