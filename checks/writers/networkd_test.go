package writers_test

import (
	"testing"

	"nodegate/checks"
	"nodegate/checks/checkstest"
)

func TestNetworkdForeignRoutes(t *testing.T) {
	files := func(version, conf string) map[string]string {
		return map[string]string{
			"/usr/lib/systemd/libsystemd-shared-" + version + ".so":                "",
			"/etc/systemd/networkd.conf":                                           "[Network]\n#ManageForeignRoutes=yes\n",
			"/usr/lib/systemd/networkd.conf.d/50-cni.conf":                         conf,
			"/etc/systemd/system/multi-user.target.wants/systemd-networkd.service": "-> /usr/lib/systemd/system/systemd-networkd.service",
		}
	}
	const both = "[Network]\nManageForeignRoutes=no\nManageForeignRoutingPolicyRules=no\n"
	masked := files("252", both)
	masked["/etc/systemd/networkd.conf.d/50-cni.conf"] = "-> /dev/null"
	checkstest.RunOne(t, "networkd.foreign-routes", checks.Image, []checkstest.Case{
		{What: "the default", Tree: files("252", ""), Want: `warn
want: ManageForeignRoutes=no ManageForeignRoutingPolicyRules=no
got: ManageForeignRoutes=yes ManageForeignRoutingPolicyRules=yes
evidence: /etc/systemd/system/multi-user.target.wants/systemd-networkd.service: enabled
evidence: /usr/lib/systemd/libsystemd-shared-252.so: systemd 252
remedy: create /etc/systemd/networkd.conf.d/99-cni.conf with section [Network] and ManageForeignRoutes=no ManageForeignRoutingPolicyRules=no` + ""},
		{What: "disabled in a drop-in", Tree: files("252", both), Want: `
pass
want: ManageForeignRoutes=no ManageForeignRoutingPolicyRules=no
got: ManageForeignRoutes=no ManageForeignRoutingPolicyRules=no
evidence: /etc/systemd/system/multi-user.target.wants/systemd-networkd.service: enabled
evidence: /usr/lib/systemd/libsystemd-shared-252.so: systemd 252
evidence: /usr/lib/systemd/networkd.conf.d/50-cni.conf:2: ManageForeignRoutes=no
evidence: /usr/lib/systemd/networkd.conf.d/50-cni.conf:3: ManageForeignRoutingPolicyRules=no`},
		{What: "the drop-in is masked", Tree: masked, Want: `warn
want: ManageForeignRoutes=no ManageForeignRoutingPolicyRules=no
got: ManageForeignRoutes=yes ManageForeignRoutingPolicyRules=yes
evidence: /etc/systemd/system/multi-user.target.wants/systemd-networkd.service: enabled
evidence: /usr/lib/systemd/libsystemd-shared-252.so: systemd 252
remedy: create /etc/systemd/networkd.conf.d/99-cni.conf with section [Network] and ManageForeignRoutes=no ManageForeignRoutingPolicyRules=no` + ""},
		{What: "256 has next hops too", Tree: files("256", both), Want: `
warn
want: ManageForeignRoutes=no ManageForeignRoutingPolicyRules=no ManageForeignNextHops=no
got: ManageForeignNextHops=yes
evidence: /etc/systemd/system/multi-user.target.wants/systemd-networkd.service: enabled
evidence: /usr/lib/systemd/libsystemd-shared-256.so: systemd 256
evidence: /usr/lib/systemd/networkd.conf.d/50-cni.conf:2: ManageForeignRoutes=no
evidence: /usr/lib/systemd/networkd.conf.d/50-cni.conf:3: ManageForeignRoutingPolicyRules=no
remedy: create /etc/systemd/networkd.conf.d/99-cni.conf with section [Network] and ManageForeignNextHops=no` + ""},
		{What: "247 removes rules and may lack the setting", Tree: files("247", "[Network]\nManageForeignRoutes=no\n"), Want: `
warn
want: ManageForeignRoutes=no ManageForeignRoutingPolicyRules=no
got: ManageForeignRoutingPolicyRules=yes
evidence: /etc/systemd/system/multi-user.target.wants/systemd-networkd.service: enabled
evidence: /usr/lib/systemd/libsystemd-shared-247.so: systemd 247
evidence: /usr/lib/systemd/networkd.conf.d/50-cni.conf:2: ManageForeignRoutes=no
remedy: create /etc/systemd/networkd.conf.d/99-cni.conf with section [Network] and ManageForeignRoutingPolicyRules=no; systemd 247 supports ManageForeignRoutingPolicyRules only if the distribution backported it from 249`},
		{What: "245 is unknown", Tree: files("245", both),
			Want: "unknown\nerror: systemd 245 has no ManageForeignRoutes: could not determine which routes networkd removes"},
		{What: "off", Tree: map[string]string{"/etc/hostname": "n"}, Want: `
skipped
skipped: systemd-networkd is off`},
	})
	live := checkstest.WithUnit(checkstest.Node(files("252", ""), nil), "systemd-networkd.service", "active", "enabled")
	checkstest.RunOne(t, "networkd.foreign-routes", checks.Run, []checkstest.Case{
		{What: "a running node", Node: live, Want: `warn
want: ManageForeignRoutes=no ManageForeignRoutingPolicyRules=no
got: ManageForeignRoutes=yes ManageForeignRoutingPolicyRules=yes
evidence: systemd-networkd.service: active, enabled
evidence: /usr/lib/systemd/libsystemd-shared-252.so: systemd 252
remedy: create /etc/systemd/networkd.conf.d/99-cni.conf with section [Network] and ManageForeignRoutes=no ManageForeignRoutingPolicyRules=no, then run ` + "`systemctl restart systemd-networkd`" + ""},
	})
}
