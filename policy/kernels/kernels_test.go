package kernels_test

import (
	"slices"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/require"
	"nodegate/policy/kernels"
)

func TestCatalogue(t *testing.T) {
	c, err := kernels.Read()
	require.NoError(t, err)
	for key, want := range map[string][]int{
		"net/ipv4/ip_forward": {1}, "net/ipv4/tcp_rmem": {3}, "net/ipv4/conf/eth0.100/rp_filter": {1}, "net/ipv6/conf/all/disable_ipv6": {1},
		"net/ipv4/conf/*/rp_filter": {1}, "net/ipv4/neigh/default/gc_thresh3": {1}, "net/bridge/bridge-nf-call-iptables": {1},
		"net/netfilter/nf_conntrack_max": {1}, "net/ipv4/vs/conntrack": {1}, "kernel/printk": {4}, "net/ipv4/ip_local_port_range": {2},
		"kernel/core_pattern": nil, "net/ipv4/tcp_congestion_control": nil, "kernel/watchdog_cpumask": nil,
		"net/ipv4/ip_local_reserved_ports": nil,
		"net/ipv4/tcp_*mem":                {3}, "net/ipv4/tcp_*": nil, "net/ipv4/route/flush": nil,
	} {
		if got, known := c.Parameter(key); !known || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %t, want %v", key, got, known, want)
		}
	}
	for _, key := range []string{"net/ipv4/ip_forwrd", "net/ipv4/conf/rp_filter", "kernel/no*", "net/ipv4/conf/*/rp_fliter"} {
		if got, known := c.Parameter(key); known {
			t.Errorf("%s is known: %v", key, got)
		}
	}
	for _, names := range []struct {
		have []string
		want []string
	}{
		{c.Modules, []string{"br_netfilter", "nf_conntrack", "overlay", "ip_vs_rr", "ena", "vxlan"}},
		{c.Kinds, []string{"vxlan", "bridge", "veth", "geneve", "wireguard", "ipip", "bond", "netkit", "tun"}},
		{c.Offloads, []string{"tx-checksum-ip-generic", "rx-gro"}},
	} {
		for _, want := range names.want {
			assert.True(t, slices.Contains(names.have, want), "the catalogue lacks %s", want)
		}
	}
	assert.True(t, len(c.Releases) >= 3, "the catalogue has only the releases %v", c.Releases)
}
