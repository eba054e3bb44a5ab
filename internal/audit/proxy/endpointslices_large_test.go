package proxy_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"nodegate/internal/audit/proxy"
	"nodegate/internal/input"
)

// TestEndpointsMultiply checks the limit: 20,000 ports with 1,000 endpoints are 20 million pairs in
// 700 KB.
func TestEndpointsMultiply(t *testing.T) {
	var ports, endpoints []string
	for i := range 20_000 {
		ports = append(ports, fmt.Sprintf(`{"name":"p%d","port":%d}`, i, i+1))
	}
	for i := range 1000 {
		endpoints = append(endpoints, fmt.Sprintf(`{"addresses":["10.0.%d.%d"]}`, i/250, i%250+1))
	}
	slice := `{"items":[{"kind":"EndpointSlice","addressType":"IPv4","metadata":{"namespace":"a","labels":{"kubernetes.io/service-name":"b"}},` +
		`"ports":[` + strings.Join(ports, ",") + `],"endpoints":[` + strings.Join(endpoints, ",") + `]}]}`
	_, err := proxy.LoadEndpointSlices(strings.NewReader(slice))
	if !errors.Is(err, input.ErrUnknown) || !strings.Contains(err.Error(), "more than 500000 endpoints") {
		t.Errorf("%d bytes: %v", len(slice), err)
	}
}
