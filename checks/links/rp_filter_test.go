package links_test

import (
	"testing"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
)

func TestRPFilter(t *testing.T) {
	links := func(all string, own map[string]string, kinds map[string]string) *hosttest.Machine {
		m := checkstest.Node(nil, map[string]string{"net/ipv4/conf/all/rp_filter": all})
		m.Links = map[string]*hosttest.Link{}
		for name, value := range own {
			m.Sysctl("net/ipv4/conf/"+name+"/rp_filter", value)
			m.Links[name] = &hosttest.Link{Kind: kinds[name], Features: map[string]host.Feature{}}
		}
		return m
	}
	kinds := map[string]string{"flannel.1": "vxlan", "lxc12ab": "veth", "cni0": "bridge", "cali1": "veth", "lxcbr0": "bridge"}
	eni := links("0", map[string]string{"ens5": "1", "eni0a": "2"}, kinds)
	eni.Files["/etc/cni/net.d/10-aws.conflist"], eni.Routes = "{}", []string{"ens5"}
	checkstest.RunOne(t, "rp-filter.effective", checks.Run, []checkstest.Case{
		{What: "all=2 reaches Cilium's interfaces", Node: links("2", map[string]string{"lxc12ab": "0", "eth0": "0"}, kinds), Want: `warn
want: 0 on lxc* and cilium_*, not 1 on tunnels and ENIs
got: lxc12ab=2
evidence: /proc/sys/net/ipv4/conf/all/rp_filter: 2
evidence: /proc/sys/net/ipv4/conf/lxc12ab/rp_filter: 0, effective 2, needs 0` + "\nremedy: run `sysctl -w net.ipv4.conf.all.rp_filter=0` and add a link block with that sysctl to the policy"},
		{What: "strict on a tunnel whose name has a dot", Node: links("0", map[string]string{"flannel.1": "1", "cni0": "1", "cali1": "1"},
			kinds), Want: `warn
want: 0 on lxc* and cilium_*, not 1 on tunnels and ENIs
got: flannel.1=1
evidence: /proc/sys/net/ipv4/conf/all/rp_filter: 0
evidence: /proc/sys/net/ipv4/conf/flannel.1/rp_filter: 1, effective 1, needs not 1` + "\nremedy: run `sysctl -w net.ipv4.conf.flannel/1.rp_filter=2` and add a link block with that sysctl to the policy"},
		{What: "strict everywhere, on a tunnel only by its effect", Node: links("1", map[string]string{"flannel.1": "0"}, kinds), Want: `warn
want: 0 on lxc* and cilium_*, not 1 on tunnels and ENIs
got: flannel.1=1
evidence: /proc/sys/net/ipv4/conf/all/rp_filter: 1
evidence: /proc/sys/net/ipv4/conf/flannel.1/rp_filter: 0, effective 1, needs not 1` + "\nremedy: run `sysctl -w net.ipv4.conf.flannel/1.rp_filter=2` and add a link block with that sysctl to the policy"},
		{What: "a strict ENI", Node: eni, Want: `warn
want: 0 on lxc* and cilium_*, not 1 on tunnels and ENIs
got: ens5=1
evidence: /proc/sys/net/ipv4/conf/all/rp_filter: 0
evidence: /proc/sys/net/ipv4/conf/ens5/rp_filter: 1, effective 1, needs not 1` + "\nremedy: run `sysctl -w net.ipv4.conf.ens5.rp_filter=2` and add a link block with that sysctl to the policy"},
		{What: "loose on a tunnel, off on Cilium's", Node: links("0", map[string]string{"flannel.1": "2", "lxc12ab": "0"}, kinds), Want: `pass
want: 0 on lxc* and cilium_*, not 1 on tunnels and ENIs
got: 0 on lxc* and cilium_*, not 1 on tunnels and ENIs
evidence: /proc/sys/net/ipv4/conf/all/rp_filter: 0`},
		{What: "no CNI, but LXC's bridge", Node: links("1", map[string]string{"eth0": "1", "lxcbr0": "1"}, kinds), Want: `
skipped
skipped: no CNI interfaces yet`},
	})
}
