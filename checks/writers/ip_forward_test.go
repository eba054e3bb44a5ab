package writers_test

import (
	"syscall"
	"testing"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/host/hosttest"
)

func TestIPForwardWriters(t *testing.T) {
	networkd := map[string][2]string{"systemd-networkd.service": {"active", "enabled"}}
	off := checkstest.Node(nil, map[string]string{"net/ipv4/ip_forward": "0"})
	reset := checkstest.Node(map[string]string{"/etc/sysctl.d/99-hardening.conf": "net.ipv4.conf.all.forwarding=0\n"},
		map[string]string{"net/ipv4/ip_forward": "1"})
	unread := map[string]error{"r /etc/sysctl.d/a.conf": syscall.EIO}
	offUnread := checkstest.Node(map[string]string{"/etc/sysctl.d/a.conf": ""}, map[string]string{"net/ipv4/ip_forward": "0"})
	onUnread := checkstest.Node(map[string]string{"/etc/sysctl.d/a.conf": ""}, map[string]string{"net/ipv4/ip_forward": "1"})
	offUnread.Refuse, onUnread.Refuse = unread, unread
	again := checkstest.Node(map[string]string{
		"/etc/sysctl.d/99-hardening.conf":   "net.ipv4.conf.all.forwarding=0\n",
		"/etc/sysctl.d/99-zz-nodegate.conf": "net.ipv4.ip_forward=1\n",
	}, map[string]string{"net/ipv4/ip_forward": "1"})
	by := func(version string) *hosttest.Machine {
		m := checkstest.Node(map[string]string{
			"/usr/lib/systemd/libsystemd-shared-" + version + ".so": "",
			"/etc/systemd/networkd.conf.d/10-hard.conf":             "[Network]\nIPv4Forwarding=no\n",
		}, map[string]string{"net/ipv4/ip_forward": "1"})
		m.Units = networkd
		return m
	}
	const allowed = `pass
want: 1, and no file sets it to 0
got: 1, and no file sets it to 0
evidence: /proc/sys/net/ipv4/ip_forward: 1`
	networkd256 := func(files map[string]string, sysctl string) *hosttest.Machine {
		m := checkstest.Node(files, map[string]string{"net/ipv4/ip_forward": sysctl})
		m.Files["/usr/lib/systemd/libsystemd-shared-256.so"] = ""
		m.Units = networkd
		m.Links = map[string]*hosttest.Link{"lo": {}, "eth0": {}, "cni0": {Kind: "bridge"}}
		return m
	}
	with6 := func(value string) *hosttest.Machine {
		return networkd256(map[string]string{"/etc/systemd/networkd.conf": "[Network]\nIPv6Forwarding=" + value + "\n"}, "1")
	}
	uplinkOff := networkd256(map[string]string{"/proc/sys/net/ipv4/conf/eth0/forwarding": "0\n"}, "1")
	uplinkOff.Routes = []string{"eth0"}
	checkstest.RunOne(t, "ip-forward.writers", checks.Run, []checkstest.Case{
		{What: "off, and the policy requires it", Node: off, Policy: checkstest.ForwardPolicy, Want: `warn
want: 1, and no file sets it to 0
got: 0 now
because: sysctl.net.ipv4.ip_forward
evidence: /proc/sys/net/ipv4/ip_forward: 0
remedy: run ` + "`sysctl -w net.ipv4.ip_forward=1`" + `, and add it to the policy`},
		{What: "off, and a file that cannot be read", Node: offUnread, Want: `warn
want: 1, and no file sets it to 0
got: 0 now
evidence: /proc/sys/net/ipv4/ip_forward: 0
remedy: run ` + "`sysctl -w net.ipv4.ip_forward=1`" + `, and add it to the policy`},
		{What: "on, and a file that cannot be read", Node: onUnread,
			Want: "unknown\nerror: reading configuration: open /etc/sysctl.d/a.conf: input/output error"},
		{What: "reset under its other name", Node: reset, Policy: checkstest.ForwardPolicy, Want: `warn
want: 1, and no file sets it to 0
got: set to 0 by /etc/sysctl.d/99-hardening.conf:1
evidence: /proc/sys/net/ipv4/ip_forward: 1
evidence: /etc/sysctl.d/99-hardening.conf:1: net.ipv4.conf.all.forwarding = 0
remedy: remove "net.ipv4.conf.all.forwarding = 0" from /etc/sysctl.d/99-hardening.conf:1`},
		{What: "reset, and set again later", Node: again, Want: `pass
want: 1, and no file sets it to 0
got: 1, and no file sets it to 0
evidence: /proc/sys/net/ipv4/ip_forward: 1`},
		{What: "networkd 256", Node: by("256"), Want: `warn
want: 1, and no file sets it to 0
got: set to 0 by /etc/systemd/networkd.conf.d/10-hard.conf:2
evidence: /proc/sys/net/ipv4/ip_forward: 1
evidence: /etc/systemd/networkd.conf.d/10-hard.conf:2: IPv4Forwarding=no
remedy: remove "IPv4Forwarding=no" from /etc/systemd/networkd.conf.d/10-hard.conf:2`},
		{What: "off for the uplink", Node: uplinkOff, Want: `warn
want: 1, and no file sets it to 0
got: 0 on eth0
evidence: /proc/sys/net/ipv4/ip_forward: 1
evidence: /proc/sys/net/ipv4/conf/eth0/forwarding: 0
remedy: remove IPv4Forwarding= from the .network file of eth0, or find out what else turns it off there`},
		{What: "networkd 256, IPv6, which this policy does not require", Node: with6("no"), Want: allowed},
		{What: "networkd 256, IPv6, which this policy turns off", Node: with6("no"),
			Policy: "sysctl \"net.ipv6.conf.default.forwarding\" { value = 0 }",
			Want:   allowed},
		{What: "networkd 256, IPv6", Node: with6("no"), Policy: "sysctl \"net.ipv6.conf.default.forwarding\" { value = 1 }", Want: `warn
want: 1, and no file sets it to 0
got: set to 0 by /etc/systemd/networkd.conf:2
evidence: /proc/sys/net/ipv4/ip_forward: 1
evidence: /etc/systemd/networkd.conf:2: IPv6Forwarding=no
remedy: remove "IPv6Forwarding=no" from /etc/systemd/networkd.conf:2`},
		{What: "networkd 252 does not support the setting", Node: by("252"), Want: `pass
want: 1, and no file sets it to 0
got: 1, and no file sets it to 0
evidence: /proc/sys/net/ipv4/ip_forward: 1`},
	})
}
