package kubeproxy_test

import (
	"maps"
	"testing"

	"nodegate/checks"
	"nodegate/checks/checkstest"
)

func TestIPVSSettings(t *testing.T) {
	good := map[string]string{
		"net/ipv4/vs/conntrack": "1", "net/ipv4/vs/expire_nodest_conn": "1", "net/ipv4/vs/expire_quiescent_template": "1",
		"net/ipv4/vs/conn_reuse_mode": "1", "net/ipv4/conf/all/arp_ignore": "1", "net/ipv4/conf/all/arp_announce": "2",
	}
	bad := maps.Clone(good)
	bad["net/ipv4/vs/conntrack"], bad["net/ipv4/conf/all/arp_ignore"] = "0", "0"
	old := checkstest.Node(nil, good)
	old.Kernel = "5.4.0-216-generic"
	checkstest.RunOne(t, "ipvs.settings", checks.Run, []checkstest.Case{
		{What: "two wrong values", Node: checkstest.Node(nil, bad), Want: `
warn
want: net.ipv4.vs.conntrack=1 net.ipv4.vs.expire_nodest_conn=1 net.ipv4.vs.expire_quiescent_template=1 net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2
got: net.ipv4.vs.conntrack=0 net.ipv4.conf.all.arp_ignore=0
evidence: uname -r: 6.1.0
evidence: /proc/sys/net/ipv4/vs/conntrack: 0
evidence: /proc/sys/net/ipv4/conf/all/arp_ignore: 0` + "\nremedy: run `sysctl -w net.ipv4.vs.conntrack=1 net.ipv4.conf.all.arp_ignore=1` and add the sysctls to the policy"},
		{What: "a kernel that needs conn_reuse_mode=0", Node: old, Want: `warn
want: net.ipv4.vs.conntrack=1 net.ipv4.vs.expire_nodest_conn=1 net.ipv4.vs.expire_quiescent_template=1 net.ipv4.vs.conn_reuse_mode=0 net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2
got: net.ipv4.vs.conn_reuse_mode=1
evidence: uname -r: 5.4.0-216-generic
evidence: /proc/sys/net/ipv4/vs/conn_reuse_mode: 1` + "\nremedy: run `sysctl -w net.ipv4.vs.conn_reuse_mode=0` and add the sysctls to the policy"},
		{What: "all correct", Node: checkstest.Node(nil, good), Want: `pass
want: net.ipv4.vs.conntrack=1 net.ipv4.vs.expire_nodest_conn=1 net.ipv4.vs.expire_quiescent_template=1 net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2
got: net.ipv4.vs.conntrack=1 net.ipv4.vs.expire_nodest_conn=1 net.ipv4.vs.expire_quiescent_template=1 net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2
evidence: uname -r: 6.1.0`},
		{What: "no ip_vs", Node: checkstest.Node(nil, nil), Want: `
skipped
skipped: ip_vs is not in the kernel`},
	})
}
