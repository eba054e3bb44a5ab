package kernels_test

import (
	"math/big"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/require"
	"nodegate/policy/kernels"
)

// TestStores: the catalogue answers for values at the limits of what each kernel accepts.
func TestStores(t *testing.T) {
	c, err := kernels.Read()
	require.NoError(t, err)
	for _, test := range []struct {
		key, value string
		answer     kernels.Answer
		stored     string
	}{
		{"vm/swappiness", "200", kernels.Stored, "200"},
		{"vm/swappiness", "0x10", kernels.Stored, "16"},
		{"vm/swappiness", "201", kernels.Refused, ""},
		{"vm/swappiness", "18446744073709551616", kernels.Unknown, ""},
		{"vm/swappiness", "1 2", kernels.Unknown, ""},
		{"vm/min_free_kbytes", "1073741824", kernels.Unknown, ""},
		{"kernel/osrelease", "6.1.0", kernels.ReadOnly, ""},
		{"kernel/core_pattern", "|/bin/x %p", kernels.Stored, "|/bin/x %p"},
		{"net/ipv4/conf/eth0.100/rp_filter", "2", kernels.Stored, "2"},
		{"net/ipv4/neigh/cni0/retrans_time", "99", kernels.Rounded, "98"},
		{"net/ipv4/neigh/*/base_reachable_time_ms", "30001", kernels.Rounded, "30004"},
		{"net/netfilter/nf_conntrack_buckets", "100000", kernels.Rounded, "100352"},
		{"net/netfilter/nf_conntrack_buckets", "0", kernels.Refused, ""},
		{"net/bridge/bridge-nf-call-iptables", "7", kernels.Rounded, "1"},
		{"net/ipv4/ip_local_port_range", "1024 1024", kernels.Stored, "1024 1024"},
		{"net/ipv4/ip_local_port_range", "1025 1024", kernels.Refused, ""},
		{"net/core/flow_limit_table_len", "1024", kernels.Stored, "1024"},
		{"net/core/flow_limit_table_len", "1023", kernels.Refused, ""},
		{"kernel/watchdog_cpumask", "0-63", kernels.Unknown, ""},
	} {
		domains := c.Domains(test.key)
		if len(domains) != 3 {
			t.Errorf("%s: %v", test.key, domains)
			continue
		}
		for _, d := range domains {
			if answer, stored := d.Stores(test.value); answer != test.answer || answer != kernels.Unknown && stored != test.stored {
				t.Errorf("%s = %s on %s: %d %q", test.key, test.value, d.Version, answer, stored)
			}
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

// TestFitRounding: the rounding is derived from pairs of a written and a kept number.
func TestFitRounding(t *testing.T) {
	fit := func(keeps func(int64) int64, written ...int64) string {
		var pairs [][2]*big.Int
		for _, v := range written {
			pairs = append(pairs, [2]*big.Int{big.NewInt(v), big.NewInt(keeps(v))})
		}
		return kernels.FitRounding(pairs)
	}
	many := []int64{1, 2, 3, 5, 8, 13, 99, 100, 1000, 1001, 4097, 12345, 99999, 100000}
	for _, test := range []struct {
		got, want string
	}{
		{fit(func(v int64) int64 { return v }, many...), ""},
		{fit(func(v int64) int64 { return min(v, 500) }, many...), "~c:1..500"},
		{fit(func(v int64) int64 { return (v + 511) / 512 * 512 }, many...), "~+512:512..100352"},
		{fit(func(v int64) int64 { return v / 4 * 4 }, many...), "~-4:0..100000"},
		{fit(func(v int64) int64 { return min(v, 1) }, many...), "~c:1..1"},
		{fit(func(v int64) int64 { return int64(int32(v)) }, append(many, 1<<31)...), "~i:-2147483648..100000"}, //nolint:gosec // on purpose
		{fit(func(v int64) int64 {
			if v > 1<<40 {
				return 7
			}
			return (v + 3) / 4 * 4
		}, append(many, 1<<41, 1<<50+1)...), "~+4:4..100000@1..100000"},
		{fit(func(v int64) int64 { return v * 3 % 1000 }, many...), "~?"},
	} {
		assert.Equal(t, test.got, test.want)
	}
}
