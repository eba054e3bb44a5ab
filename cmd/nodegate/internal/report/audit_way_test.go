package report_test

import (
	"strings"
	"testing"

	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/assert"
	"nodegate/internal/audit"
	"nodegate/internal/require"
	"nodegate/internal/verdict"
)

// TestWriteWays: the text names the chains that were not followed.
func TestWriteWays(t *testing.T) {
	for _, format := range []string{"text", "json", "svg"} {
		var b strings.Builder
		err := report.WriteWays(&b, format, []audit.Trace{{Service: "prod/web", Protocol: "tcp", Family: "ip", From: "a Pod", To: "10.96.0.1:80",
			Verdict: verdict.Unknown, NotFollowed: []string{"chain in of table netdev x, at hook ingress of eth0, may drop packets"}}})
		if err != nil || !strings.Contains(b.String(), "chain in of table netdev") {
			t.Errorf("%s: %v\n%s", format, err, b.String())
		}
	}
}

// TestDrawWays: a drawing of a way fits a phone, has the hooks and the shares, and marks the rule that loses the packets.
func TestDrawWays(t *testing.T) {
	rule := audit.TraceStep{Hook: "PREROUTING", Table: "nat", Chain: "KUBE-SERVICES", Line: 7, Does: "KUBE-SVC-X", Rule: "-A KUBE-SERVICES -j KUBE-SVC-X"}
	drop := audit.TraceStep{Hook: "FORWARD", Table: "filter", Chain: "FORWARD", Line: 35, Does: "DROP", Rule: "-A FORWARD -d 10.244.0.4 -j DROP"}
	var b strings.Builder
	require.NoError(t, report.WriteWays(&b, "svg", []audit.Trace{{Service: "prod/web", Verdict: verdict.Fail, Steps: []audit.TraceStep{rule},
		Ways: []audit.TraceWay{
			{End: "dropped", To: []string{"10.244.0.4:53"}, Chance: 0.25, Sure: true, Steps: []audit.TraceStep{drop}},
			{End: "forwarded", To: []string{"10.244.0.5:53"}, Chance: 0.75, Sure: true, Reply: "comes back"},
		}}}))
	_, bad := svgBoxes(t, b.String())
	assert.Diff(t, bad, []string{"prod/web (, ) from to : fail", "filter FORWARD line 35: DROP -d 10.244.0.4 -j DROP",
		"dropped, on its way to 10.244.0.4:53, not translated"})
	for _, text := range []string{">FORWARD<", ">25.00 %<", ">75.00 %<"} {
		if !strings.Contains(b.String(), text) {
			t.Errorf("no %s in %s", text, &b)
		}
	}
}
