package fleet_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nodegate/cmd/nodegate/internal/fleet"
	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/assert"
	"nodegate/internal/require"
	"nodegate/internal/verdict"
)

// inOrder returns the checks with their kinds.
func inOrder(f fleet.Fleet) string {
	var lines []string
	for _, c := range f.Checks {
		lines = append(lines, c.Kind.String()+" "+c.Name)
	}
	return strings.Join(lines, "\n")
}

// asText returns the table as text, without colours.
func asText(t testing.TB, f fleet.Fleet, all bool) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, fleet.Text(&b, f, all, report.Plain))
	return b.String()
}

func TestWorstFirst(t *testing.T) {
	var reports []string
	for n := range 10 {
		results := []result{
			pass("same", "1"), pass("own", fmt.Sprint(n)), pass("value", "4096"), pass("fails-on-three", "1"), pass("fails-on-one", "1"),
			fail("fails-everywhere", "0"), because(pass("symptom", "1"), ""), {"name": "skipped-on-one", "verdict": "pass", "got": "1"},
			pass("half", fmt.Sprint(n%2)),
		}
		if n < 3 {
			results[3] = fail("fails-on-three", "0")
		}
		switch n {
		case 4:
			results[2] = pass("value", "128")
		case 5:
			results[4] = fail("fails-on-one", "0")
			results[6] = because(fail("symptom", "absent"), "fails-on-one")
		case 6:
			results[7] = result{"name": "skipped-on-one", "verdict": "skipped", "skipped": "no IPVS"}
		case 7:
			results = results[:8] // lacks half of the checks
		}
		reports = append(reports, reportOf(t, fmt.Sprintf("node-%d", 10-n), "boot", results...))
	}
	f := merged(t, reports...)
	const want = `wrong fails-everywhere
verdict fails-on-three
verdict fails-on-one
value value
value skipped-on-one
follows symptom
varies own
varies half
alike same`
	assert.Diff(t, inOrder(f), want)
	var groups []string
	for _, g := range f.Groups {
		line := ""
		for _, n := range g.Nodes {
			line += f.Nodes[n].Name + " "
		}
		for _, c := range g.Differs {
			line += "| " + f.Checks[c].Name + " "
		}
		groups = append(groups, strings.TrimSpace(line))
	}
	if d := cmp.Diff([]string{
		"node-5 | fails-on-one | symptom", "node-8 node-9 node-10 | fails-on-three", "node-4 | skipped-on-one",
		"node-6 | value", "node-3", "node-1 node-2 node-7",
	}, groups); d != "" {
		t.Errorf("groups: %s", d)
	}
	assert.True(t, f.Verdict() == verdict.Fail && f.Count(verdict.Fail) == 10, "%s, %d fail", f.Verdict(), f.Count(verdict.Fail))
}

// TestStages: a check that does not belong to a node's stage is not a difference.
func TestStages(t *testing.T) {
	f := merged(t,
		reportOf(t, "a", "boot", pass("module", "loaded")), reportOf(t, "b", "run", pass("module", "loaded"), pass("mtu.chain", "ok")),
		reportOf(t, "c", "run", pass("module", "loaded")), reportOf(t, "d", "run", pass("module", "loaded"), pass("mtu.chain", "ok")))
	d := cmp.Diff("value mtu.chain\nalike module", inOrder(f))
	require.True(t, d == "", "%v", d)
	odd := f.Checks[0].States[1]
	assert.True(t, f.Checks[0].Odd() == 1 && odd.NotChecked && f.Nodes[odd.Nodes[0]].Name == "c", "%+v", f.Checks[0].States)
	_, asked := f.Checks[0].Of(0)
	assert.True(t, !asked, "a node of stage boot was asked about stage run")
}

func TestText(t *testing.T) {
	const want = `module.br_netfilter
    39  pass       loaded
     1  fail       not loaded  ip-10-0-0-17
        do        run: mend module.br_netfilter

sysctl.net.ipv4.ip_forward
    38  pass       1
     2  unknown    reading sysctl: permission denied  ip-10-0-0-3, ip-10-0-0-9

kubelet.cgroup-v1
    40  warn       v1
        do        boot with cgroup v2

sysctl.net.core.somaxconn
    39  pass       4096
     1  pass       128   ip-10-0-0-5

because of these: sysctl.net.bridge.bridge-nf-call-iptables (module.br_netfilter), ` +
		`sysctl.net.bridge.bridge-nf-call-ip6tables (module.br_netfilter)

no majority, all nodes pass: conntrack.headroom

ip-10-0-0-17: module.br_netfilter fail
ip-10-0-0-3, ip-10-0-0-9: sysctl.net.ipv4.ip_forward unknown
ip-10-0-0-5: sysctl.net.core.somaxconn pass 128
36 nodes match the majority: ip-10-0-0-0, ip-10-0-0-1, ip-10-0-0-2, ip-10-0-0-4, ip-10-0-0-6 and 31 more

nodegate: fail  (40 nodes of eu-central-1.compute.internal, 60 checks, stage boot: 1 fail, 2 unknown, 37 pass)
`
	f := merged(t, farm(t, 40, 60)...)
	assert.Diff(t, asText(t, f, false), want)
	all := asText(t, f, true)
	if !strings.Contains(all, "identical on all nodes: sysctl.filler.7, ") ||
		!strings.Contains(all, ", ip-10-0-0-39\n") || strings.Contains(all, " more") {
		t.Errorf("all of it:\n%s", all)
	}
	one := merged(t, reportOf(t, "a.example", "boot", pass("module", "loaded")))
	assert.Equal(t, asText(t, one, false), "\nnodegate: pass  (1 check, stage boot: 1 pass)\n", "one node")
}

// TestHostileText: a report's text cannot inject anything into a terminal.
func TestHostileText(t *testing.T) {
	const evil = "<script>alert(1)</script>\x1b[2J\u202e\"'&\n\x00"
	f := merged(t, reportOf(t, "a"+evil, "b"+evil, pass("n"+evil, "1")),
		reportOf(t, "c"+evil, "b"+evil, fail("n"+evil, evil)), reportOf(t, "d"+evil, "b"+evil, pass("n"+evil, "1")))
	got := asText(t, f, true)
	assert.True(t, !strings.ContainsAny(got, "\x1b\u202e\x00"), "text: %q", got)
}

func TestJSON(t *testing.T) {
	f := merged(t, farm(t, 20, 10)...)
	var b bytes.Buffer
	require.NoError(t, report.JSON(&b, fleet.NewDocument(f)))
	var d struct {
		APIVersion, Kind, Verdict string
		Nodes                     []struct{ Name, Verdict, Stage, Time, File string }
		Checks                    []struct {
			Name, Difference, Because, Remedy string
			States                            []struct {
				Verdict, Got string
				Count        int
				Nodes        []string
			}
		}
		Groups []struct{ Nodes, Differs []string }
	}
	require.NoError(t, json.Unmarshal(b.Bytes(), &d))
	first := d.Checks[0]
	if d.Kind != "FleetReport" || d.Verdict != "fail" || len(d.Nodes) != 20 || len(d.Checks) != 10 ||
		first.Name != "module.br_netfilter" || first.Difference != "verdict" ||
		first.States[0].Count != 19 || first.States[0].Nodes != nil || first.States[1].Nodes[0] != "ip-10-0-0-17.eu-central-1.compute.internal" ||
		d.Groups[0].Differs[0] != "module.br_netfilter" || !strings.HasPrefix(d.Nodes[1].File, "all.json:2:1") {
		t.Errorf("%s", b.String())
	}
}

// TestFacts: eight of fifty nodes with another kernel stand out, although no policy requires a kernel.
func TestFacts(t *testing.T) {
	var reports []string
	for n := range 50 {
		kernel := "6.1.0-50"
		if n%6 == 1 && n < 48 {
			kernel = "6.1.0-49"
		}
		text := reportOf(t, fmt.Sprintf("node-%d", n), "boot", pass("a", "1"))
		reports = append(reports, strings.Replace(text, `"name":"node-`, `"kernel":"`+kernel+`","name":"node-`, 1))
	}
	f := merged(t, reports...)
	c := f.Checks[0]
	assert.True(t, c.Name == "node.kernel" && c.Kind == fleet.Valued && c.Odd() == 8, "%+v", c)
}
