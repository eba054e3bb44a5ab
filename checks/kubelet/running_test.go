package kubelet_test

import (
	"testing"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/host/hosttest"
)

func TestHostUsers(t *testing.T) {
	node := func(version, value string) *hosttest.Machine {
		m := checkstest.Node(nil, nil)
		if value != "" {
			m = checkstest.Node(nil, map[string]string{"user/max_user_namespaces": value})
		}
		m.Version = map[string]string{"kubelet": "Kubernetes v" + version}
		return m
	}
	checkstest.RunOne(t, "kubelet.host-users", checks.Run, []checkstest.Case{
		{What: "a hardening guide", Node: node("1.36.0", "0"), Want: `
warn
want: user namespaces allowed
got: not allowed
evidence: /proc/sys/user/max_user_namespaces: 0
remedy: run ` + "`sysctl -w user.max_user_namespaces=15000`" + `, and add it to the policy`},
		{What: "a kernel without user namespaces", Node: node("1.33.1", ""), Want: `
warn
want: user namespaces allowed
got: a kernel without user namespaces
remedy: use a kernel with CONFIG_USER_NS`},
		{What: "allowed", Node: node("1.36.0", "15000"), Want: `
pass
want: user namespaces allowed
got: user namespaces allowed
evidence: /proc/sys/user/max_user_namespaces: 15000`},
		{What: "an older kubelet", Node: node("1.32.9", "0"), Want: "skipped\nskipped: kubelet is older than 1.33 or not installed"},
	})
}

func TestClock(t *testing.T) {
	node := func(uptime string, unsynced bool) *hosttest.Machine {
		m := checkstest.Node(map[string]string{"/proc/uptime": uptime + " 1.00\n"}, nil)
		m.Unsynced = unsynced
		return m
	}
	checkstest.RunOne(t, "clock.unsynchronised", checks.Run, []checkstest.Case{
		{What: "unsynchronised", Node: node("7265.31", true), Want: `
warn
want: a synchronised clock
got: an unsynchronised clock
evidence: adjtimex: STA_UNSYNC, 2h1m0s after the boot
remedy: start chronyd or systemd-timesyncd; run ` + "`timedatectl`" + ` or ` + "`chronyc tracking`" + ` to see whether its servers answer`},
		{What: "synchronised", Node: node("7265.31", false), Want: "pass\nwant: a synchronised clock\ngot: a synchronised clock"},
		{What: "just booted", Node: node("599.9", true), Want: "skipped\nskipped: the machine has been up for less than 10 minutes"},
	})
}
