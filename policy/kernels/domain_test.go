package kernels_test

import (
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/require"
	"nodegate/policy/kernels"
)

// TestAnswer: the catalogue answers for values at the limits of what each kernel accepts.
func TestAnswer(t *testing.T) {
	c, err := kernels.Read()
	require.NoError(t, err)
	for _, test := range []struct {
		key, value string
		answer     kernels.Answer
	}{
		{"vm/swappiness", "200", kernels.Stored},
		{"vm/swappiness", "0x10", kernels.Stored},
		{"vm/swappiness", "201", kernels.Refused},
		{"vm/swappiness", "18446744073709551616", kernels.Unknown},
		{"vm/swappiness", "1 2", kernels.Unknown},
		{"vm/min_free_kbytes", "1073741824", kernels.Unknown},
		{"kernel/osrelease", "6.1.0", kernels.ReadOnly},
		{"kernel/core_pattern", "|/bin/x %p", kernels.Stored},
		{"net/ipv4/conf/eth0.100/rp_filter", "2", kernels.Stored},
		{"net/ipv4/neigh/cni0/retrans_time", "99", kernels.Unknown},
		{"net/ipv4/neigh/*/base_reachable_time_ms", "30001", kernels.Unknown},
		{"net/netfilter/nf_conntrack_buckets", "100000", kernels.Unknown},
		{"net/netfilter/nf_conntrack_buckets", "0", kernels.Refused},
		{"net/bridge/bridge-nf-call-iptables", "7", kernels.Unknown},
		{"net/ipv4/ip_local_port_range", "1024 1024", kernels.Stored},
		{"net/ipv4/ip_local_port_range", "1025 1024", kernels.Refused},
		{"net/core/flow_limit_table_len", "1024", kernels.Stored},
		{"net/core/flow_limit_table_len", "1023", kernels.Refused},
		{"kernel/watchdog_cpumask", "0-63", kernels.Unknown},
	} {
		domains := c.Domains(test.key)
		if len(domains) != 3 {
			t.Errorf("%s: %v", test.key, domains)
			continue
		}
		for _, d := range domains {
			assert.Equal(t, d.Answer(test.value), test.answer, "%s = %s on %s", test.key, test.value, d.Version)
		}
	}
	for _, test := range []struct {
		key  string
		have []string
		want string
	}{
		{"sunrpc/tcp_slot_table_entries", []string{"br_netfilter", "sunrpc"}, "sunrpc"},
		{"sunrpc/tcp_slot_table_entries", []string{"nfs"}, "nfs"},
		{"dev/raid/speed_limit_m*", []string{"raid456"}, "raid456"},
		{"net/ipv4/vs/conntrack", []string{"ip_vs_rr"}, "ip_vs_rr"},
		{"net/ipv4/ip_forward", []string{"sunrpc"}, ""},
	} {
		assert.Equal(t, c.Brings(test.key, test.have), test.want, "%s by %v", test.key, test.have)
	}
}
