package writers_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/checks/checkstest"
	"nodegate/internal/assert"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/verdict"
)

// TestNMCloudSetupRulesInARealKernel creates the rules as nm-cloud-setup does, in a namespace, and also reads them from a recording.
func TestNMCloudSetupRulesInARealKernel(t *testing.T) {
	h := checkstest.Scratch(t)
	hosttest.NeedProgram(t, "ip")
	list := catalog.For(checkstest.Load(t, `check "nm-cloud-setup" {}`), checks.Run)
	judged := func(h *host.Host, want verdict.Verdict, got string) {
		t.Helper()
		r := checks.Inspect(t.Context(), h, checks.Run, list).Results[0]
		assert.True(t, r.Verdict == want && r.State.Got == got, "want %s, %s; got %s", want, got, checkstest.Text(r))
	}
	judged(h, verdict.Pass, "off")
	checkstest.AddLink(t, &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "ens6"}, PeerName: "peer"})
	for _, command := range []string{
		"link set peer up", "link set ens6 up", "addr add 10.0.2.5/24 dev ens6",
		"route add 10.0.2.0/24 dev ens6 table 30201", "rule add priority 30201 from 10.0.2.5 table 30201",
		"rule add priority 30350 table main suppress_prefixlength 0",
		"route add default via 10.0.2.1 dev ens6 table 30401", "rule add priority 30401 from 10.0.2.5 table 30401",
	} {
		if out, err := exec.CommandContext(t.Context(), "ip", strings.Fields(command)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", command, err, out)
		}
	}
	recorded, snapshot := host.Record(h)
	judged(recorded, verdict.Warn, "off, but its rules to table 30201, 30401 remain")
	rules, err := host.Replay(snapshot).Links.RoutingRules(t.Context())
	assert.True(t, err == nil && len(rules) == 2 && rules[0].Routes == 1 && rules[0].From == "10.0.2.5/32", "recorded %+v, %v", rules, err)
}
