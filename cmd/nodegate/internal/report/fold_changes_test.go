package report

import (
	"fmt"
	"strings"
	"testing"

	"nodegate/checks"
	"nodegate/internal/assert"
)

// TestFolded: folding keeps the first and the last value of every setting that still exists.
func TestFolded(t *testing.T) {
	sysctl := func(target, from, to string) Write {
		return Write{Kind: checks.SetSysctl, Target: target, From: from, To: to}
	}
	changes := []AppliedChange{
		{Name: "both", Writes: []Write{sysctl("a", "1", "1"), sysctl("b", "0", "1")}},
		{Name: "link", Writes: []Write{{Kind: checks.SetMTU, Target: "veth1", From: "1500", To: "1400"}, {Kind: checks.SetMTU, Target: "eth0", From: "9001", To: "1400"}}},
		{Name: "nobody's"},
		{Name: "offload", Writes: []Write{{Kind: checks.SetFeatures, Target: "eth0", From: "gro=on", To: "gro=off"}}},
		{Name: "offloads", Writes: []Write{{Kind: checks.SetFeatures, Target: "eth0", From: "gro=on, gso=on", To: "gro=off, gso=off"}}},
		{Name: "again", Writes: []Write{sysctl("b", "0", "2"), sysctl("c", "7", "8"), sysctl("c", "8", "9")}},
		{Name: "gone", Writes: []Write{sysctl("veth1", "0", "1")}},
	}
	var got []string
	for _, c := range mergeChanges(changes, func(w Write) bool { return w.Target != "veth1" }) {
		got = append(got, fmt.Sprint(c.Name, " ", c.Writes))
	}
	const want = `both [{sysctl a 1 1 } {sysctl b 0 2 }]
link [{mtu eth0 9001 1400 }]
offload [{offload eth0 gro=on gro=off }]
offloads [{offload eth0 gro=on, gso=on gro=off, gso=off }]
again [{sysctl c 7 9 }]`
	assert.Equal(t, strings.Join(got, "\n"), want)
	if changes[0].Writes[1].To != "1" {
		t.Error("the input was modified")
	}
}
