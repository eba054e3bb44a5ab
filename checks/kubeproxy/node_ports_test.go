package kubeproxy_test

import (
	"testing"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/host/hosttest"
)

func TestNodePortOverlap(t *testing.T) {
	ports := func(local, reserved string) *hosttest.Machine {
		return checkstest.Node(nil, map[string]string{"net/ipv4/ip_local_port_range": local, "net/ipv4/ip_local_reserved_ports": reserved})
	}
	checkstest.RunOne(t, "nodeport.overlap", checks.Run, []checkstest.Case{
		{What: "a wide range", Node: ports("1024\t65535", "6443,30000-30999,32000-32767"), Want: `warn
want: 30000-32767 not used for outgoing connections
got: local ports 1024-65535, port 31000 not reserved
evidence: /proc/sys/net/ipv4/ip_local_port_range: 1024 65535
evidence: /proc/sys/net/ipv4/ip_local_reserved_ports: 6443,30000-30999,32000-32767` + "\nremedy: run `sysctl -w 'net.ipv4.ip_local_reserved_ports=6443,30000-30999,32000-32767,30000-32767'` and add the sysctl to the policy"},
		{What: "wide and reserved", Node: ports("1024 65535", "30000-31999,32000-32767"), Want: `pass
want: 30000-32767 not used for outgoing connections
got: 30000-32767 not used for outgoing connections
evidence: /proc/sys/net/ipv4/ip_local_port_range: 1024 65535
evidence: /proc/sys/net/ipv4/ip_local_reserved_ports: 30000-31999,32000-32767`},
		{What: "the kernel's default", Node: ports("32768 60999", ""), Want: `pass
want: 30000-32767 not used for outgoing connections
got: 30000-32767 not used for outgoing connections
evidence: /proc/sys/net/ipv4/ip_local_port_range: 32768 60999`},
		{What: "not a range", Node: ports("x", ""), Want: "unknown\nerror: reading net.ipv4.ip_local_port_range \"x\": expected integer"},
	})
}
