package settle_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// kind is the set of a Service's fields other than its endpoints.
type kind struct {
	policy, vip, ranges string
	affinity, health    int
}

// kinds returns the kinds between which Services change. The API never has the last one.
func kinds() []kind {
	return []kind{
		{}, {affinity: 77}, {affinity: 300}, {policy: "Cluster"}, {policy: "Local"}, {policy: "Cluster", vip: "192.0.2.1"},
		{policy: "Cluster", vip: "192.0.2.2"}, {policy: "Cluster", vip: "192.0.2.1", ranges: "198.51.100.0/24"},
		{policy: "Local", vip: "192.0.2.1", ranges: "203.0.113.0/24", health: 32100}, {policy: "Local", health: 32101},
		{policy: "Cluster", vip: "192.0.2.99"},
	}
}

// parts splits a state.
func parts(state string) (endpoints []string, k kind) {
	list, number, _ := strings.Cut(state, " ")
	if n, err := strconv.Atoi(number); err == nil {
		k = kinds()[n]
	}
	return strings.FieldsFunc(strings.TrimPrefix(list, "gone"), func(r rune) bool { return r == ',' }), k
}

func (c *cluster) service(name, state string) string {
	i := slices.Index(c.names, name)
	_, k := parts(state)
	port, kind, affinity, ingress := 0, "ClusterIP", "None", ""
	if k.policy != "" {
		port, kind = 30080+i, "LoadBalancer"
	}
	if k.affinity != 0 {
		affinity = "ClientIP"
	}
	if k.vip != "" {
		ingress = fmt.Sprintf(`{"ip": %q}`, k.vip)
	}
	return fmt.Sprintf(`{"kind": "Service", "metadata": {"namespace": "default", "name": %q},
		"spec": {"type": %q, "clusterIP": "10.96.0.%d", "ports": [{"port": 80, "protocol": "TCP", "nodePort": %d}], "sessionAffinity": %q,
		"sessionAffinityConfig": {"clientIP": {"timeoutSeconds": %d}}, "externalTrafficPolicy": %q, "healthCheckNodePort": %d,
		"loadBalancerSourceRanges": [%s]}, "status": {"loadBalancer": {"ingress": [%s]}}}`, strings.TrimPrefix(name, "default/"), kind, i+1,
		port, affinity, k.affinity, k.policy, k.health, quoted(k.ranges), ingress)
}

func quoted(s string) string {
	if s == "" {
		return ""
	}
	return strconv.Quote(s)
}

func (c *cluster) slice(name, state string) string {
	var list []string
	endpoints, _ := parts(state)
	for _, e := range endpoints {
		list = append(list, fmt.Sprintf(`{"addresses": [%q], "conditions": {"ready": true}}`, address(e)))
	}
	name = strings.TrimPrefix(name, "default/")
	return fmt.Sprintf(`{"kind": "EndpointSlice", "addressType": "IPv4", "metadata": {"namespace": "default", "name": "%s-1",
		"labels": {"kubernetes.io/service-name": %q}}, "endpoints": [%s], "ports": [{"name": "", "port": 80, "protocol": "TCP"}]}`,
		name, name, strings.Join(list, ","))
}
