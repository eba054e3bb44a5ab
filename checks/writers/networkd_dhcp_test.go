package writers_test

import (
	"testing"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
)

func TestNetworkdCNILinks(t *testing.T) {
	node := func(network string, files ...string) *hosttest.Machine {
		all := map[string]string{"/etc/systemd/network/50-all.network": network}
		for i := 0; i < len(files); i += 2 {
			all[files[i]] = files[i+1]
		}
		return checkstest.WithUnit(checkstest.Node(all, nil), "systemd-networkd.service", "active", "enabled")
	}
	const dhcp = "[Network]\nDHCP=yes\n"
	const flatcar = "[Match]\nName=*\nType=!loopback bridge tunnel vxlan wireguard\nDriver=!veth dummy\n" + dhcp
	right := "pass\nwant: no DHCP on the CNI's links\ngot: no DHCP on the CNI's links\nevidence: systemd-networkd.service: active, enabled"
	wrong := func(links, line, value string) string {
		return "warn\nwant: no DHCP on the CNI's links\ngot: DHCP on " + links + "\nevidence: systemd-networkd.service: active, enabled\n" +
			"evidence: /etc/systemd/network/50-all.network:" + line + ": DHCP=" + value +
			"\nremedy: exclude the CNI's links from the file: Driver=!veth and Type=!vxlan tunnel bridge in its [Match] section"
	}
	calico := []string{"/etc/cni/net.d/10-calico.conflist", `{"plugins": [{"type": "calico"}]}`}
	checkstest.RunOne(t, "networkd.cni-links", checks.Run, []checkstest.Case{
		{What: "every link", Node: node("[Match]\nName=*\n"+dhcp, calico...), Want: wrong("cali*, tunl*, vxlan.calico, veth*", "4", "yes")},
		{What: "every link of a virtual " +
			"machine", Node: node("[Match]\nVirtualization=vm\n[Network]\nDHCP=ipv4\n", calico...), Host: func(*host.Host) {},
			Want: wrong("cali*, tunl*, vxlan.calico, veth*", "4", "ipv4")},
		{What: "every ethernet link, as its own type " +
			"says", Host: func(*host.Host) {}, Node: node("[Match]\nType=ether\n"+dhcp, calico...), Want: wrong("cali*, "+
			"veth*", "4", "yes")},
		{What: "Flatcar's file", Host: func(*host.Host) {}, Node: node(flatcar, calico...), Want: right},
		{What: "the uplink", Node: node("[Match]\nName=en*\n"+dhcp, calico...), Want: right},
		{What: "an earlier file for the CNI's links", Node: node("[Match]\nName=*\n"+dhcp, "/etc/systemd/network/10-cni.network",
			"[Match]\nName=cali* veth* tunl* vxlan.calico flannel*\n[Link]\nUnmanaged=yes\n"), Want: right},
		{What: "networkd is off", Node: checkstest.WithUnit(checkstest.Node(nil, nil), "systemd-networkd.service", "inactive", "disabled"),
			Want: "skipped\nskipped: systemd-networkd is off"},
	})
}
