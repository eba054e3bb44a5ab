package report

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"nodegate/checks"
	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

// TestAppendedAtOnce: no line is lost while eight processes append and fold the log. The test runs itself with a /run of its own, and
// there as each of the processes.
func TestAppendedAtOnce(t *testing.T) {
	const processes, lines = 8, 300
	switch process := os.Getenv("APPENDS"); process {
	case "":
		hosttest.NeedRoot(t)
		out, err := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-euc", `mount -t tmpfs tmpfs /run; all=
			for n in 1 2 3 4 5 6 7 8; do APPENDS=$n "$0" -test.run '^TestAppendedAtOnce$' & all="$all $!"; done
			for one in $all; do wait $one; done
			APPENDS=end exec "$0" -test.run '^TestAppendedAtOnce$'`, os.Args[0]).CombinedOutput()
		assert.True(t, err == nil, "%v\n%s", err, out)
	case "end":
		changes, damaged, err := ReadChanges()
		require.NoError(t, err)
		seen := map[string]bool{}
		for _, c := range changes {
			seen[c.Name] = true
		}
		_, err = os.Stat(olderChanges)
		assert.True(t, len(seen) == processes*lines && damaged == nil && err == nil,
			"%d changes of %d, damaged %q, %v", len(seen), processes*lines, damaged, err)
		RecordChange(AppliedChange{Name: "later"})
		require.NoError(t, ReplaceChanges(changes, changes[:1]))
		if left, _, err := ReadChanges(); err != nil || len(left) != 2 || left[0].Name != "later" {
			t.Errorf("after a replacement: %v, %v", left, err)
		}
	default:
		long := Write{Kind: checks.LoadModule, Target: strings.Repeat("x", 1000)} // a folded log has it once
		for i := range lines {
			name := fmt.Sprint(process, ".", i)
			RecordChange(AppliedChange{Name: name, Writes: []Write{{Kind: checks.LoadModule, Target: name}, long}})
		}
	}
}

// TestFolded: folding keeps the first and the last value of every setting that still exists.
func TestFolded(t *testing.T) {
	sysctl := func(target, from, to string) Write {
		return Write{Kind: checks.SetSysctl, Target: target, From: from, To: to}
	}
	changes := []AppliedChange{
		{Name: "both", Writes: []Write{sysctl("a", "1", "1"), sysctl("b", "0", "1")}},
		{Name: "link", Writes: []Write{{Kind: "mtu", Target: "veth1", From: "1500", To: "1400"}, {Kind: "mtu", Target: "eth0", From: "9001", To: "1400"}}},
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
	assert.True(t, changes[0].Writes[1].To == "1", "the input was modified")
}
