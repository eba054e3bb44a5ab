package host_test

import (
	"fmt"
	"testing"

	"nodegate/internal/host/hosttest"
)

// TestCoupledParameters: exactly the parameters that writing the former value back does not
// restore.
func TestCoupledParameters(t *testing.T) {
	m := &hosttest.Machine{Files: map[string]string{}}
	for key, value := range map[string]string{
		"net/ipv4/conf/all/forwarding": "0", "net/ipv4/conf/eth0/forwarding": "0", "net/ipv4/conf/eth1/forwarding": "1",
		"net/ipv4/conf/all/accept_redirects": "0", "net/ipv6/conf/eth0/disable_ipv6": "1", "net/ipv6/conf/eth1/disable_ipv6": "0",
		"vm/dirty_bytes": "0", "vm/dirty_ratio": "20",
	} {
		m.Sysctl(key, value)
	}
	for _, test := range []struct{ key, value, want string }{
		{"net/ipv4/ip_forward", "0", "[{net/ipv4/conf/eth1/forwarding 1} {net/ipv4/conf/all/accept_redirects 0}]"},
		{"net/ipv4/conf/all/forwarding", "1", "[{net/ipv4/conf/all/forwarding 0} {net/ipv4/conf/eth0/forwarding 0}]"},
		{"net/ipv6/conf/all/disable_ipv6", "0", "[{net/ipv6/conf/eth0/disable_ipv6 1}]"},
		{"vm/dirty_bytes", "0", "[{vm/dirty_ratio 20}]"},
		{"vm/dirty_ratio", "20", "[]"},
		{"vm/overcommit_kbytes", "0", "[]"}, // an old kernel
		{"net/ipv4/conf/eth0/forwarding", "0", "[]"},
	} {
		if got := fmt.Sprint(m.Host().CoupledParameters(test.key, test.value)); got != test.want {
			t.Errorf("%s = %s: %s, want %s", test.key, test.value, got, test.want)
		}
	}
}
