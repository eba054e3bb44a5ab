package kubeproxy

import (
	"io"
	"strings"
	"testing"
	"time"
)

// useUp does with a ruleset all that a command may do; none of it may panic, whatever the rules say.
func useUp(t *testing.T, rs *Ruleset) {
	t.Helper()
	eps := endpoints(t, sliceText("", "10.0.0.1 rs @n1 +a", "10.0.0.2 st"))
	for _, o := range []Options{{}, {Endpoints: eps, NodeName: "n1", Zone: "a"}} {
		rep := Judge(rs, o)
		for _, f := range rep.Findings {
			if f.Name == "" || f.Message == "" {
				t.Fatalf("finding without a name or message: %+v", f)
			}
		}
		if err := Summary(io.Discard, &rep); err != nil {
			t.Fatal(err)
		}
		if err := DOT(io.Discard, &rep); err != nil {
			t.Fatal(err)
		}
		for _, s := range rep.Services {
			if err := Tree(io.Discard, &rep, s.Name); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func FuzzIptablesSave(f *testing.F) {
	f.Add(hashed(form115))
	f.Add(hashed(formIPv6))
	f.Add("*nat\n:X - [0:0]\n[1:2] -A X ! -s 1.2.3.4/32 -m comment --comment \"a \\\" b\" -j RETURN\nCOMMIT\n")
	f.Fuzz(func(t *testing.T, text string) {
		rs, err := ParseIptablesSave(strings.NewReader(text))
		if err == nil {
			useUp(t, rs)
		}
	})
}

func FuzzNFT(f *testing.F) {
	f.Add(readFile(f, "nft-1.36-form.json"))
	f.Add(`{"nftables": [{"table": {"family": "ip", "name": "kube-proxy"}}, {"chain": {"family": "ip", "table": "kube-proxy", "name": "services"}}, {"rule": {"family": "ip", "table": "kube-proxy", "chain": "services", "expr": [{"drop": null}]}}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		rs, err := ParseNFT(strings.NewReader(text))
		if err == nil {
			useUp(t, rs)
		}
	})
}

func FuzzEndpointSlices(f *testing.F) {
	f.Add(sliceText("", "10.0.0.1 rs @n1 +a *n1", "10.0.0.2 st"))
	f.Add(`{"items": [{"kind": "EndpointSlice", "endpoints": [{"addresses": []}, {"addresses": ["::1"], "hints": {}}], "ports": [{}, {"port": 1}]}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		eps, err := LoadEndpointSlices(strings.NewReader(text))
		if err != nil {
			return
		}
		rep := Report{families: map[string]bool{"ip": true}, Services: []Service{{Name: "prod/np", Protocol: "tcp", Family: "ip", Endpoints: []Endpoint{{Address: "10.0.0.1:80"}}}}}
		out := newCollector()
		compare(&rep, &Options{Endpoints: eps, NodeName: "n1"}, out)
	})
}

func FuzzOwnEndpoints(f *testing.F) {
	f.Add(`{"lastUpdated":"2026-11-20T23:00:00Z","currentTime":"2026-11-20T23:00:00Z","healthy":true,"status":{"IPv4":{"lastUpdated":"2026-11-20T22:30:00.5Z","healthy":true}}}`)
	f.Add("kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family=\"IPv4\"} 1.7999990e+09\n")
	f.Add("E1120 22:10:00.123456 1 reflector.go:158] failed to list *v1.Service: x\n")
	f.Fuzz(func(t *testing.T, text string) {
		now := time.Date(2026, 11, 20, 23, 0, 0, 0, time.UTC)
		if h, err := ParseHealth([]byte(text), 200); err == nil {
			JudgeHealth(h, now)
		}
		if m, err := ParseMetrics(strings.NewReader(text)); err == nil {
			JudgeMetrics(m, now)
		}
		if _, err := JudgeLog(strings.NewReader(text), now); err != nil {
			t.Log(err)
		}
	})
}
