package fleet_test

import (
	"bytes"
	"strings"
	"testing"

	"nodegate/cmd/nodegate/internal/fleet"
	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/assert"
	"nodegate/internal/require"
)

// TestWouldBeHeld: a policy that only warns lists the nodes that it would hold, from the gate's own reports.
func TestWouldBeHeld(t *testing.T) {
	warns := func(text string) string {
		return strings.Replace(text, `"stage"`, `"policy":{"enforce":"warn"},"stage"`, 1)
	}
	f := merged(t, warns(reportOf(t, "n1", "boot", fail("swap", "on"))), warns(reportOf(t, "n2", "boot", pass("swap", "off"))),
		warns(reportOf(t, "n3", "run", fail("swap", "on"))), reportOf(t, "n4", "boot", fail("swap", "on")))
	const want = "1 node would be held if enforce were not warn: "
	var text, document bytes.Buffer
	require.NoError(t, fleet.Text(&text, f, false, report.Plain))
	assert.Contains(t, text.String(), want+"n1\n", "the text")
	require.NoError(t, report.JSON(&document, fleet.NewDocument(f)))
	n := strings.Count(document.String(), `"enforce": "warn"`)
	assert.True(t, n == 3, "%d nodes of the JSON say that the gate only warns, want 3:\n%s", n, &document)
	if f := merged(t, reportOf(t, "n4", "boot", fail("swap", "on"))); f.WouldBeHeld() != nil {
		t.Error("a node that is held would be held")
	}
}

// TestOutdated: the report of a watch that has ended is listed as outdated. The gate's report of a boot does not become outdated.
func TestOutdated(t *testing.T) {
	before := func(text, at string) string { return strings.Replace(text, "2026-11-20T10:00", at, 1) }
	f := merged(t, reportOf(t, "n1", "run", pass("swap", "off")), before(reportOf(t, "n2", "run", pass("swap", "off")), "2026-11-18T10:00"),
		before(reportOf(t, "n3", "run", pass("swap", "off")), "2026-11-20T02:00"),
		before(reportOf(t, "n4", "boot", pass("swap", "off")), "2026-10-01T10:00"),
		before(reportOf(t, "n5", "run", pass("swap", "off")), "no time, "))
	const want = "1 report more than a day older than the newest (is nodegate watch running there?): "
	var text bytes.Buffer
	require.NoError(t, fleet.Text(&text, f, false, report.Plain))
	assert.Contains(t, text.String(), want+"n2\n", "the text")
}

// TestConsoleReport: a node with only a console report shows the checks that do not pass. The other checks must not be shown as "not
// checked".
func TestConsoleReport(t *testing.T) {
	all := reportOf(t, "n1", "boot", fail("swap", "on"), pass("panic", "10"), pass("other", "1"))
	held := reportOf(t, "n2", "boot", fail("swap", "on"), fail("other", "0"))
	read, err := report.Decode("all.json", strings.NewReader(all+strings.Replace(all, "n1", "n3", 1)+held))
	require.NoError(t, err)
	lines, err := report.ConsoleReport(read[2].Report)
	require.NoError(t, err)
	console, err := report.DecodeConsole("console", strings.NewReader(strings.Join(lines, "\n")))
	require.True(t, err == nil && len(console) == 1, "%v, %v", console, err)
	for want, reports := range map[string][]report.Read{"not checked": read, "": append(read[:2:2], console...)} {
		f, errs := fleet.Merge(reports)
		if text := asText(t, f, true); errs != nil || strings.Contains(text, "not checked") != (want != "") || !strings.Contains(text, "other") {
			t.Errorf("want %q: %v\n%s", want, errs, text)
		}
	}
}
