package report_test

import (
	"strings"
	"testing"

	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/audit"
	"nodegate/internal/verdict"
)

// TestWriteWays: the text names the chains that were not followed.
func TestWriteWays(t *testing.T) {
	var b strings.Builder
	err := report.WriteWays(&b, []audit.Trace{{Service: "prod/web", Protocol: "tcp", Family: "ip", From: "a Pod", To: "10.96.0.1:80",
		Verdict: verdict.Unknown, NotFollowed: []string{"chain in of table netdev x, at hook ingress of eth0, may drop packets"}}})
	if err != nil || !strings.Contains(b.String(), "chain in of table netdev") {
		t.Errorf("%v\n%s", err, b.String())
	}
}
