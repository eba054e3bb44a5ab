package writers_test

import (
	"testing"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
)

func TestUnitsThatMustBeOff(t *testing.T) {
	tables := func(text string) *hosttest.Machine {
		return checkstest.WithUnit(checkstest.Node(map[string]string{"/etc/nftables.conf": "#!/usr/sbin/nft -f\n\n" + text}, nil), "nftables.service", "inactive", "enabled")
	}
	checkstest.RunOne(t, "firewalld", checks.Run, []checkstest.Case{
		{What: "nftables.service, as Debian has it", Node: tables("flush ruleset\ntable inet filter {\n}\n"), Want: `warn
want: off
got: nftables.service deletes all rules at each start and reload
evidence: firewalld.service: inactive
evidence: /etc/nftables.conf: flush ruleset
remedy: in /etc/nftables.conf delete only its own tables, with ` + "`table inet NAME; delete table inet NAME` in place of `flush ruleset`; or run `systemctl disable nftables.service`"},
		{What: "nftables.service with its own table only", Node: tables("# flush ruleset\ntable inet filter\ndelete table inet filter\n"), Want: `pass
want: off
got: off
evidence: firewalld.service: inactive`},
		{What: "running", Node: checkstest.WithUnit(checkstest.Node(nil, nil), "firewalld.service", "active", "enabled"), Want: `warn
want: off
got: firewalld.service is active, enabled
evidence: firewalld.service: active, enabled
remedy: run ` + "`systemctl disable --now firewalld.service`"},
		{What: "stopped", Node: checkstest.WithUnit(checkstest.Node(nil, nil), "firewalld.service", "inactive", "disabled"), Want: `pass
want: off
got: off
evidence: firewalld.service: inactive, disabled`},
	})
	checkstest.RunOne(t, "nm-cloud-setup", checks.Run, []checkstest.Case{
		{What: "the timer alone", Node: checkstest.WithUnit(checkstest.Node(nil, nil), "nm-cloud-setup.timer", "active", "enabled"), Want: `warn
want: off
got: nm-cloud-setup.timer is active, enabled
evidence: nm-cloud-setup.service: inactive
evidence: nm-cloud-setup.timer: active, enabled
remedy: run ` + "`systemctl disable --now nm-cloud-setup.service nm-cloud-setup.timer`" + `, then reboot the node to remove the rules`},
	})
	stale := checkstest.Node(nil, nil)
	stale.Routing = []host.RoutingRule{
		{Priority: 100, Table: 30200, From: "10.0.0.9/32"}, // of another program
		{Priority: 30200, Table: 30200, From: "10.0.1.5/32", Routes: 1}, {Priority: 30200, Table: 30200, From: "10.0.1.6/32", Routes: 1},
		{Priority: 30401, Table: 30401, From: "10.0.2.5/32", Routes: 1},
	}
	other := checkstest.Node(nil, nil)
	other.Routing = []host.RoutingRule{{Priority: 1024, Table: 2, From: "10.0.1.5/32", Routes: 2},
		{Priority: 30300, Table: 30300, From: "10.0.1.5/32"}}
	checkstest.RunOne(t, "nm-cloud-setup", checks.Run, []checkstest.Case{
		{What: "off, but its rules remain", Node: stale, Want: `
warn
want: off
got: off, but its rules to table 30200, 30401 remain
evidence: ip rule: 30200: from 10.0.1.5/32 lookup 30200, 1 routes
evidence: ip rule: 30200: from 10.0.1.6/32 lookup 30200, 1 routes
evidence: ip rule: 30401: from 10.0.2.5/32 lookup 30401, 1 routes
evidence: nm-cloud-setup.service: inactive
evidence: nm-cloud-setup.timer: inactive
remedy: reboot the node: disabling nm-cloud-setup does not remove its rules`},
		{What: "on, with its rules", Node: func() *hosttest.Machine {
			m := checkstest.WithUnit(checkstest.Node(nil, nil), "nm-cloud-setup.timer", "active", "enabled")
			m.Routing = stale.Routing[3:]
			return m
		}(), Want: `
warn
want: off
got: nm-cloud-setup.timer is active, enabled, and its rules to table 30401 exist
evidence: ip rule: 30401: from 10.0.2.5/32 lookup 30401, 1 routes
evidence: nm-cloud-setup.service: inactive
evidence: nm-cloud-setup.timer: active, enabled
remedy: run ` + "`systemctl disable --now nm-cloud-setup.service nm-cloud-setup.timer`" + `, then reboot the node to remove the rules`},
		{What: "rules of a CNI", Node: other, Want: `pass
want: off
got: off
evidence: nm-cloud-setup.service: inactive
evidence: nm-cloud-setup.timer: inactive`},
	})
	checkstest.RunOne(t, "nm-cloud-setup", checks.Image, []checkstest.Case{
		{What: "enabled in an image", Tree: map[string]string{
			"/etc/systemd/system/timers.target.wants/nm-cloud-setup.timer": "-> /usr/lib/systemd/system/nm-cloud-setup.timer"}, Want: `warn
want: off
got: nm-cloud-setup.timer is enabled
evidence: nm-cloud-setup.service: not enabled
evidence: /etc/systemd/system/timers.target.wants/nm-cloud-setup.timer: enabled
remedy: run ` + "`systemctl --root=ROOT disable nm-cloud-setup.service nm-cloud-setup.timer`" + `, then reboot the node to remove the rules`},
		{What: "absent", Tree: map[string]string{"/etc/hostname": "n"}, Want: `pass
want: off
got: off
evidence: nm-cloud-setup.service: not enabled
evidence: nm-cloud-setup.timer: not enabled`},
	})
}
