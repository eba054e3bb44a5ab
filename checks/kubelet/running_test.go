package kubelet_test

import (
	"testing"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/host/hosttest"
)

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
