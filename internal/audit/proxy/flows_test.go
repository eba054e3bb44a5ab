package proxy_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/audit/proxy"
	"nodegate/internal/require"
)

const flowServices = `{"kind": "List", "items": [
 {"kind": "Service", "metadata": {"namespace": "kube-system", "name": "dns"}, "spec": {"clusterIPs": ["10.96.0.10", "fd00::a"],
  "ports": [{"name": "udp", "port": 53, "protocol": "UDP", "nodePort": 30053}, {"name": "tcp", "port": 53, "protocol": "TCP"}]}},
 {"kind": "Service", "metadata": {"namespace": "default", "name": "none"}, "spec": {"clusterIP": "10.96.0.11",
  "ports": [{"port": 514, "protocol": "UDP"}]}},
 {"kind": "Service", "metadata": {"namespace": "default", "name": "balanced"}, "spec": {"clusterIP": "10.96.0.12",
  "externalIPs": ["192.0.2.1"], "ports": [{"port": 30053, "protocol": "UDP"}, {"name": "b", "port": 30054, "protocol": "UDP"}]},
  "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.5"}]}}},
 {"kind": "Service", "metadata": {"namespace": "default", "name": "ports"}, "spec": {"clusterIP": "10.96.0.13",
  "ports": [{"port": 80, "protocol": "UDP", "nodePort": 30055}]}}]}`

const flowSlices = `{"kind": "List", "items": [
 {"kind": "EndpointSlice", "addressType": "IPv4", "metadata": {"namespace": "kube-system", "name": "dns-1",
   "labels": {"kubernetes.io/service-name": "dns"}},
  "endpoints": [{"addresses": ["10.244.0.2"]},
   {"addresses": ["10.244.0.3"], "conditions": {"ready": false, "serving": true, "terminating": true}},
   {"addresses": ["10.244.0.4"], "conditions": {"ready": false, "serving": false, "terminating": true}}],
  "ports": [{"name": "udp", "port": 5353, "protocol": "UDP"}, {"name": "tcp", "port": 5353, "protocol": "TCP"}]},
 {"kind": "EndpointSlice", "addressType": "IPv6", "metadata": {"namespace": "kube-system", "name": "dns-2",
   "labels": {"kubernetes.io/service-name": "dns"}},
  "endpoints": [{"addresses": ["fd00:1::2"]}],
  "ports": [{"name": "udp", "port": 5353, "protocol": "UDP"}, {"name": "tcp", "port": 5353, "protocol": "TCP"}]},
 {"kind": "EndpointSlice", "addressType": "IPv4", "metadata": {"namespace": "default", "name": "none-1",
   "labels": {"kubernetes.io/service-name": "none"}}, "endpoints": [], "ports": [{"port": 514, "protocol": "UDP"}]}]}`

func TestStaleFlows(t *testing.T) {
	services, err := proxy.LoadServices(strings.NewReader(flowServices))
	require.NoError(t, err)
	endpoints, err := proxy.LoadEndpointSlices(strings.NewReader(flowSlices))
	require.NoError(t, err)
	for _, test := range []struct {
		what, protocol, to, endpoint string
		closing                      bool
		want                         string
	}{
		{"an endpoint", "udp", "10.96.0.10:53", "10.244.0.2:5353", false, ""},
		{"a terminating endpoint that serves", "udp", "10.96.0.10:53", "10.244.0.3:5353", false, ""},
		{"a terminating endpoint", "udp", "10.96.0.10:53", "10.244.0.4:5353", false, ""},
		{"a missing endpoint", "udp", "10.96.0.10:53", "10.244.0.9:5353", false, "kube-system/dns:udp"},
		{"another port of an endpoint", "udp", "10.96.0.10:53", "10.244.0.2:53", false, "kube-system/dns:udp"},
		{"TCP without an answer", "tcp", "10.96.0.10:53", "10.244.0.9:5353", false, "kube-system/dns:tcp"},
		{"TCP that is closing", "tcp", "10.96.0.10:53", "10.244.0.9:5353", true, ""},
		{"a Service without endpoints", "udp", "10.96.0.11:514", "10.244.0.9:514", false, "default/none"},
		{"a node port", "udp", "192.0.2.2:30053", "10.244.0.9:5353", false, "kube-system/dns:udp"},
		{"a node port of another host", "udp", "192.0.2.3:30053", "10.244.0.9:5353", false, ""},
		{"a load balancer's address", "udp", "192.0.2.5:30053", "10.244.0.9:5353", false, ""},
		{"an external address of the node", "udp", "192.0.2.1:30053", "10.244.0.9:5353", false, ""},
		{"a node port at that address", "udp", "192.0.2.1:30055", "10.244.0.9:5353", false, "default/ports"},
		{"IPv6", "udp", "[fd00::a]:53", "[fd00:1::9]:5353", false, "kube-system/dns:udp"},
		{"IPv6 to an endpoint", "udp", "[fd00::a]:53", "[fd00:1::2]:5353", false, ""},
		{"IPv6 lacks the node port", "udp", "[2001:db8::1]:30054", "[fd00:1::9]:5353", false, ""},
		{"an unused address", "udp", "10.96.0.99:53", "10.244.0.9:5353", false, ""},
		{"another protocol", "sctp", "10.96.0.10:53", "10.244.0.9:5353", false, ""},
	} {
		f := proxy.Flow{Protocol: test.protocol, Client: netip.MustParseAddrPort("10.0.0.1:4000"), To: netip.MustParseAddrPort(test.to),
			Endpoint: netip.MustParseAddrPort(test.endpoint), Closing: test.closing,
			Own: slices.Contains([]string{"192.0.2.1", "192.0.2.2", "2001:db8::1"}, netip.MustParseAddrPort(test.to).Addr().String())}
		got := ""
		if stale := proxy.StaleFlows([]proxy.Flow{f}, services, endpoints); len(stale) == 1 {
			got = stale[0].Service
		}
		assert.Equal(t, got, test.want, "%s", test.what)
	}
}

// TestLiveFlows checks that a TCP connection stays valid after its endpoint has left the Service.
// For other protocols, an answer has no influence.
func TestLiveFlows(t *testing.T) {
	services, err := proxy.LoadServices(strings.NewReader(flowServices))
	require.NoError(t, err)
	endpoints, err := proxy.LoadEndpointSlices(strings.NewReader(flowSlices))
	require.NoError(t, err)
	for protocol, stale := range map[string]int{"tcp": 0, "udp": 1} {
		f := proxy.Flow{Protocol: protocol, Client: netip.MustParseAddrPort("10.0.0.1:4000"), Replied: true,
			To: netip.MustParseAddrPort("10.96.0.10:53"), Endpoint: netip.MustParseAddrPort("10.244.0.9:5353")}
		if got := proxy.StaleFlows([]proxy.Flow{f}, services, endpoints); len(got) != stale {
			t.Errorf("%s with an answer: got %v", protocol, got)
		}
	}
}

// TestFlowFindings checks that all flows to one endpoint give one finding, whose remedy deletes
// exactly these flows.
func TestFlowFindings(t *testing.T) {
	flow := func(client, to, endpoint string) proxy.StaleFlow {
		return proxy.StaleFlow{Service: "kube-system/dns:udp", Flow: proxy.Flow{Protocol: "udp",
			Client: netip.MustParseAddrPort(client), To: netip.MustParseAddrPort(to), Endpoint: netip.MustParseAddrPort(endpoint)}}
	}
	found := proxy.FlowFindings([]proxy.StaleFlow{
		flow("10.0.0.2:1", "[fd00::a]:53", "[fd00:1::9]:5353"),
		flow("10.0.0.1:1", "10.96.0.10:53", "10.244.0.9:5353"),
		flow("10.0.0.1:2", "10.96.0.10:53", "10.244.0.9:5353"),
	})
	var got []string
	for _, f := range found {
		got = append(got, f.Message, f.Remedy)
	}
	want := []string{
		"traffic to 10.96.0.10:53/udp still goes to 10.244.0.9:5353, which is in no EndpointSlice of the Service; flows in use: 2",
		"delete these flows: `conntrack -D -p udp --orig-dst 10.96.0.10 --orig-port-dst 53 --reply-src 10.244.0.9 " +
			"--reply-port-src 5353`",
		"traffic to [fd00::a]:53/udp still goes to [fd00:1::9]:5353, which is in no EndpointSlice of the Service; flows in use: 1",
		"delete these flows: `conntrack -D -f ipv6 -p udp --orig-dst fd00::a --orig-port-dst 53 --reply-src fd00:1::9 " +
			"--reply-port-src 5353`",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// BenchmarkStaleFlows compares 100,000 flows with 5,000 Services of ten endpoints. One flow in a
// hundred is stale.
func BenchmarkStaleFlows(b *testing.B) {
	var svcs, slices []string
	for i := range 5000 {
		svcs = append(svcs, fmt.Sprintf(`{"kind": "Service", "metadata": {"namespace": "scale", "name": "s%d"}, "spec": {"clusterIP": "10.96.%d.%d",
			"ports": [{"port": 53, "protocol": "UDP"}]}}`, i, i/256, i%256))
		var addresses []string
		for k := range 10 {
			addresses = append(addresses, fmt.Sprintf(`{"addresses": ["100.64.%d.%d"]}`, i*10/256+k/256, (i*10+k)%256))
		}
		slices = append(slices, fmt.Sprintf(`{"kind": "EndpointSlice", "addressType": "IPv4", "metadata": {"namespace": "scale", "name": "s%d-1",
			"labels": {"kubernetes.io/service-name": "s%d"}}, "endpoints": [%s], "ports": [{"port": 5353, "protocol": "UDP"}]}`,
			i, i, strings.Join(addresses, ", ")))
	}
	list := func(items []string) *strings.Reader {
		return strings.NewReader(`{"kind": "List", "items": [` + strings.Join(items, ",") + "]}")
	}
	services, err := proxy.LoadServices(list(svcs))
	require.NoError(b, err)
	endpoints, err := proxy.LoadEndpointSlices(list(slices))
	require.NoError(b, err)
	flows := make([]proxy.Flow, 100_000)
	for i := range flows {
		to := netip.AddrFrom4([4]byte{10, 96, byte(i % 5000 / 256), byte(i % 5000 % 256)})
		at := netip.AddrFrom4([4]byte{100, 64, byte(i % 5000 * 10 / 256), byte(i % 5000 * 10 % 256)})
		if i%100 == 0 {
			at = netip.AddrFrom4([4]byte{100, 127, 0, 1})
		}
		flows[i] = proxy.Flow{Protocol: "udp", Client: netip.AddrPortFrom(to, uint16(i)), To: netip.AddrPortFrom(to, 53),
			Endpoint: netip.AddrPortFrom(at, 5353)}
	}
	for b.Loop() {
		if stale := proxy.StaleFlows(flows, services, endpoints); len(stale) != 1000 {
			b.Fatal(len(stale))
		}
	}
}
