package proxy

import (
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/audit/path"
	"nodegate/internal/verdict"
)

// TestAddOnce: a rule that meets packets of both families is one cause, and so are the losses by routing rules. Other rules are causes
// of their own.
func TestAddOnce(t *testing.T) {
	r := &reach{out: NewCollector(), found: map[string]*taken{}}
	add := func(family, table string, handle int, v verdict.Verdict) {
		r.addOnce(Finding{Name: "kubeproxy.way.forward", Family: family, Table: table, Chain: "c", Handle: handle, Verdict: v, Message: "m"})
	}
	for _, c := range []struct {
		family, table string
		handle, want  int
	}{
		{"ip", "inet fw", 2, 1}, {"ip6", "inet fw", 2, 1}, {"ip6", "inet fw", 3, 2}, {"ip", "inet fw", 4, 3}, {"ip", "filter", 0, 4}, {"ip6", "filter", 0, 5},
		{"ip", "arp fw", 5, 6}, {"ip6", "arp fw", 5, 6},
	} {
		add(c.family, c.table, c.handle, map[bool]verdict.Verdict{true: verdict.Warn, false: verdict.Fail}[c.family == "ip"])
		assert.Equal(t, len(r.out.List), c.want, "%+v", c)
	}
	assert.Equal(t, r.out.List[0].Verdict, verdict.Fail)
	assert.Equal(t, r.out.List[0].Message, "m"+bothFamilies)
	assert.Equal(t, r.out.List[5].Message, "m")
	for _, to := range []string{"10.244.0.4", "10.244.1.4"} {
		r.add(path.Step{Hook: path.Routing, Rule: "ip route get " + to}, path.Way{}, "from Pods")
	}
	assert.Equal(t, strings.Join(r.order, " "), path.Routing)
}
