package host_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
)

// TestRelated: a parameter is related to those that a recorded kernel changes along with it, and to the same one of each interface.
func TestRelated(t *testing.T) {
	m := &hosttest.Machine{Files: map[string]string{}}
	for key, value := range map[string]string{
		"net/ipv4/ip_forward": "1", "net/ipv4/conf/all/forwarding": "0", "net/ipv4/conf/eth0/forwarding": "1",
		"net/ipv4/conf/all/accept_redirects": "0", "net/ipv6/conf/default/later": "1", "net/ipv6/conf/eth0/later": "0",
		"vm/dirty_bytes": "0", "vm/dirty_ratio": "20",
	} {
		m.Sysctl(key, value)
	}
	for key, want := range map[string]string{
		"net/ipv4/ip_forward":           "[{net/ipv4/conf/all/accept_redirects 0} {net/ipv4/conf/all/forwarding 0} {net/ipv4/conf/eth0/forwarding 1}]",
		"net/ipv4/conf/all/forwarding":  "[{net/ipv4/conf/all/accept_redirects 0} {net/ipv4/conf/eth0/forwarding 1} {net/ipv4/ip_forward 1}]",
		"net/ipv6/conf/default/later":   "[{net/ipv6/conf/eth0/later 0}]",
		"vm/dirty_bytes":                "[{vm/dirty_ratio 20}]",
		"vm/overcommit_kbytes":          "[]", // an old kernel
		"net/ipv4/conf/eth0/forwarding": "[]",
	} {
		got := m.Host().Related(key)
		slices.SortFunc(got, func(a, b host.Parameter) int { return strings.Compare(a.Key, b.Key) })
		assert.Equal(t, fmt.Sprint(got), want, "%s: %s", key, got)
	}
}
