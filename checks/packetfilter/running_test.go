package packetfilter_test

import (
	"os/exec"
	"testing"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
)

// TestIncompatible adds a rule that only nft can express to a table of this kernel's iptables-nft.
func TestIncompatible(t *testing.T) {
	h := checkstest.Scratch(t)
	hosttest.NeedProgram(t, "nft")
	hosttest.NeedProgram(t, "iptables-nft")
	run := func(command string) {
		t.Helper()
		if out, err := exec.Command("sh", "-ec", command).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
	}
	expect := func(check, want string) {
		t.Helper()
		r := checkstest.On(t.Context(), t, h, checks.Run, check, "")
		assert.True(t, r.Verdict.String() == want, "%s is %s (%v), want %s", check, r.Verdict, r.Err, want)
	}
	run("iptables-nft -A FORWARD -j ACCEPT; iptables-nft -t nat -N KUBE-SERVICES")
	expect("packetfilter.incompatible", "pass")
	expect("iptables.backends", "pass")
	run("nft add rule ip filter FORWARD ct count 3 accept")
	expect("packetfilter.incompatible", "warn")
	expect("iptables.backends", "unknown")
	run("nft flush chain ip filter FORWARD")
	expect("packetfilter.incompatible", "pass")
}
