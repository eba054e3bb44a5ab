package settle

import (
	"strings"
	"testing"
	"time"

	"nodegate/internal/assert"
	"nodegate/internal/audit/proxy"
)

// TestKeepRepeated: of two rules in one chain each keeps its own finding, and one that is gone is not found twice.
func TestKeepRepeated(t *testing.T) {
	reading := func(rules string) (list []proxy.Finding) {
		for _, rule := range strings.Fields(rules) {
			list = append(list, proxy.Finding{Name: "kubeproxy.way.forward", Chain: "FORWARD", Rule: rule})
		}
		return list
	}
	for _, c := range []struct{ before, after, want string }{
		{"tcp udp", "tcp udp", "tcp udp"}, {"tcp udp", "udp", "udp"}, {"tcp", "tcp udp", "tcp"}, {"tcp", "", ""},
	} {
		got := ""
		for _, one := range keepRepeated(newCandidates(reading(c.before), time.Time{}, 0), reading(c.after)) {
			got += " " + one.last.Rule
		}
		assert.Equal(t, strings.TrimSpace(got), c.want, "%+v", c)
	}
}
