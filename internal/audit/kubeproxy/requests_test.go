package kubeproxy

import (
	"strings"
	"testing"
	"time"

	"nodegate/internal/assert"
)

// TestRequests checks that requests fail only if at least three did in more than a minute, and none was
// answered since.
func TestRequests(t *testing.T) {
	for what, c := range map[string]struct {
		seen  []Requests // each 30 s later
		fails bool

		counts time.Duration // after the first reading
	}{
		"none":               {[]Requests{{}, {}, {}, {}}, false, 0},
		"all answered":       {[]Requests{{5, 0}, {6, 0}, {7, 0}, {8, 0}}, false, 0},
		"quiet":              {[]Requests{{5, 9}, {5, 9}, {5, 9}, {5, 9}}, false, 0},
		"all fail":           {[]Requests{{5, 0}, {5, 2}, {5, 4}, {5, 6}}, true, 0},
		"for half a minute":  {[]Requests{{5, 0}, {5, 0}, {5, 2}, {5, 9}}, false, 0},
		"two fail":           {[]Requests{{5, 0}, {5, 2}, {5, 3}, {5, 4}}, false, 0},
		"answered again":     {[]Requests{{5, 0}, {5, 2}, {5, 4}, {6, 6}}, false, 0},
		"another process":    {[]Requests{{5, 9}, {5, 12}, {5, 15}, {5, 1}}, false, 0},
		"another one fails":  {[]Requests{{5, 9}, {5, 12}, {5, 15}, {5, 1}, {5, 20}}, false, 0},
		"another, answered":  {[]Requests{{5, 0}, {5, 2}, {5, 4}, {1, 6}}, false, 0},
		"metrics lost":       {[]Requests{{5, 0}, {5, 2}, {}, {5, 6}}, false, 0},
		"until it answers":   {[]Requests{{5, 0}, {5, 2}, {5, 4}, {5, 6}}, false, 61 * time.Second},
		"long after it":      {[]Requests{{5, 0}, {5, 2}, {5, 4}, {5, 6}, {5, 8}}, true, time.Second},
		"failed before that": {[]Requests{{5, 50}, {5, 50}, {5, 51}, {5, 52}}, false, 0},
	} {
		s, now := requestsSeen{}, time.Now()
		began := now
		fails := false
		for _, r := range c.seen {
			fails = len(s.judge(r, now, began.Add(c.counts))) > 0
			now = now.Add(30 * time.Second)
		}
		assert.Equal(t, fails, c.fails, "%s", what)
	}
}

// TestParseRequests reads the counts of kube-proxy 1.37.2 while the API server refuses its connections.
func TestParseRequests(t *testing.T) {
	const page = `# TYPE rest_client_requests_total counter
kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family="IPv4"} 50
rest_client_requests_total{code="200",host="10.77.0.1:6443",method="GET"} 12
rest_client_requests_total{code="201",host="10.77.0.1:6443",method="POST"} 1
rest_client_requests_total{code="401",host="10.77.0.1:6443",method="GET"} 2
rest_client_requests_total{code="<error>",host="10.77.0.1:6443",method="GET"} 28
rest_client_requests_total{code="200"} x
rest_client_requests_total{
`
	m, err := ParseMetrics(strings.NewReader(page))
	if err != nil || m.Requests != (Requests{Answered: 13, Failed: 30}) {
		t.Errorf("%+v, %v", m.Requests, err)
	}
}
