package packetfilter_test

import (
	"testing"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/verdict"
)

func TestIptablesVersion(t *testing.T) {
	node := func(said string) *hosttest.Machine {
		return &hosttest.Machine{Version: map[string]string{"iptables": said}}
	}
	checkstest.Run(t, []checkstest.Case{
		{What: "too old for kube-proxy", Problem: "iptables.version", Node: node("iptables v1.6.1"), Want: `
warn
want: at least 1.6.2
got: 1.6.1
evidence: iptables --version: iptables v1.6.1
remedy: install iptables 1.6.2 or later: this version lacks --random-fully`},
		{What: "too old for -w", Problem: "iptables.version", Stage: checks.Run, Node: node("iptables v1.4.7"), Want: `
warn
want: at least 1.6.2
got: 1.4.7
evidence: iptables --version: iptables v1.4.7
remedy: install iptables 1.6.2 or later: this version lacks -w (1.4.20) and --random-fully (1.6.2)`},
		{What: "new", Problem: "iptables.version", Node: node("iptables v1.8.9 (nf_tables)"), Want: `
pass
want: at least 1.6.2
got: 1.8.9
evidence: iptables --version: iptables v1.8.9 (nf_tables)`},
		{What: "two numbers", Problem: "iptables.version", Node: node("iptables v1.8 (legacy)"), Want: `
pass
want: at least 1.6.2
got: 1.8.0
evidence: iptables --version: iptables v1.8 (legacy)`},
		{What: "not a version", Problem: "iptables.version", Node: node("BusyBox"), Want: `
unknown
error: iptables --version prints no version`},
		{What: "not installed", Problem: "iptables.version", Node: &hosttest.Machine{}, Want: `
skipped
skipped: iptables is not installed: kube-proxy uses its own`},
	})
	r := checkstest.On(t.Context(), t, (&hosttest.Machine{Version: map[string]string{"iptables": "iptables v1.8.7 (nf_tables)"}}).Host(),
		checks.Run, "iptables.version", "")
	if r.Verdict != verdict.Pass || len(r.State.Evidence) != 2 || r.State.Evidence[1].Source != "note" {
		t.Errorf("1.8.7 on nf_tables is not noted: %+v", r.State)
	}
}
