package fleet_test

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"nodegate/cmd/nodegate/internal/fleet"
	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/assert"
	"nodegate/internal/require"
)

// TestHeatMap compares each cell and each bar of a page: its class and its sign.
func TestHeatMap(t *testing.T) {
	warn := result{"name": "a", "verdict": "warn", "severity": "warn", "got": "1"}
	unknown := result{"name": "a", "verdict": "unknown", "severity": "block", "error": "reading a: permission denied"}
	skipped := result{"name": "a", "verdict": "skipped", "severity": "block", "skipped": "not there"}
	reports := []string{}
	for n := range 8 {
		reports = append(reports, reportOf(t, fmt.Sprint("n", n), "boot", pass("a", "1"), pass("b", "1")))
	}
	f := merged(t, append(reports,
		reportOf(t, "other", "boot", pass("a", "2"), pass("b", "1")),
		reportOf(t, "wrong", "boot", fail("a", "0"), pass("b", "2")),
		reportOf(t, "warned", "boot", warn, pass("b", "1")),
		reportOf(t, "unread", "boot", unknown, pass("b", "1")),
		reportOf(t, "skips", "boot", skipped, pass("b", "1")),
		reportOf(t, "lacks", "boot", pass("b", "1")),
		reportOf(t, "runs", "run", pass("c", "1")), reportOf(t, "runs too", "run", pass("c", "1")),
		reportOf(t, "stops", "run", fail("c", "0")))...)
	var page bytes.Buffer
	require.NoError(t, fleet.HTML(&page, f))
	breaks := strings.NewReplacer("<i ", "\n<i ", "</th>", "</th>\n", "</summary>", "</summary>\n")
	var got strings.Builder
	for _, line := range regexp.MustCompile(`(?m)^(<tr><th.*|<div class=bar>.*)$`).FindAllString(page.String(), -1) {
		got.WriteString(breaks.Replace(line) + "\n")
	}
	const want = `<tr><th scope=row><q>wrong</q></th>
<td class=fail title="a: fail 0">F<td class=none><td class=value title="b: pass 2">≠</tr>
<tr><th scope=row><q>stops</q></th>
<td class=none><td class=fail title="c: fail 0">F<td class=none></tr>
<tr><th scope=row><q>unread</q></th>
<td class=unknown title="a: unknown reading a: permission denied">?<td class=none><td class=pass></tr>
<tr><th scope=row><q>warned</q></th>
<td class=warn title="a: warn 1">!<td class=none><td class=pass></tr>
<tr><th scope=row><q>lacks</q></th>
<td class=none title="a: not checked">×<td class=none><td class=pass></tr>
<tr><th scope=row><q>skips</q></th>
<td class=skip title="a: skipped not there">–<td class=none><td class=pass></tr>
<tr><th scope=row><q>other</q></th>
<td class=value title="a: pass 2">≠<td class=none><td class=pass></tr>
<tr><th scope=row><details><summary><q>runs</q> <b>+1</b></summary>
<q>runs too</q></details></th>
<td class=none><td class=pass><td class=none></tr>
<tr><th scope=row><details><summary><q>n0</q> <b>+7</b></summary>
<q>n1,</q> <q>n2,</q> <q>n3,</q> <q>n4,</q> <q>n5,</q> <q>n6,</q> <q>n7</q></details></th>
<td class=pass><td class=none><td class=pass></tr>
<div class=bar>
<i class=pass style=flex-grow:8></i>
<i class=value style=flex-grow:1></i>
<i class=skip style=flex-grow:1></i>
<i class=unknown style=flex-grow:1></i>
<i class=warn style=flex-grow:1></i>
<i class=fail style=flex-grow:1></i>
<i class=none style=flex-grow:1></i></div>
<div class=bar>
<i class=pass style=flex-grow:2></i>
<i class=fail style=flex-grow:1></i></div>
<div class=bar>
<i class=pass style=flex-grow:13></i>
<i class=value style=flex-grow:1></i></div>
`
	assert.Diff(t, got.String(), want, "the cells")
}

// TestPageOfFixes: the first line counts the checks that apply fixes, without symptoms. Text in backquotes becomes code. Names are whole. A
// check in which all nodes pass with values of their own has no column.
func TestPageOfFixes(t *testing.T) {
	long := strings.Repeat("a-long-label.", 12) + "example.com"
	fixable := fail("a", "0")
	fixable["fixable"], fixable["want"], fixable["remedy"] = "true", "at least <1>", "run `nodegate apply` <now>"
	symptom := because(fail("b", "0"), "a")
	symptom["fixable"] = "true"
	reports := []string{reportOf(t, long, "boot", fixable, symptom, pass("c", "3")),
		reportOf(t, "n2", "boot", fixable, pass("b", "1"), pass("c", "4")), reportOf(t, "n3", "boot", fail("a", "2"), pass("b", "1"), pass("c", "5"))}
	for i := range reports {
		reports[i] = strings.ReplaceAll(reports[i], `"fixable":"true"`, `"fixable":true`)
	}
	f := merged(t, reports...)
	var page, text bytes.Buffer
	require.NoError(t, fleet.HTML(&page, f))
	for _, want := range []string{"<h1>3 of 3 nodes not passing; <code>nodegate apply</code> fixes 1 check on 2 nodes</h1>",
		"<b>Do</b> run <code>nodegate apply</code> &lt;now&gt;</p>", "<b>Want</b> <code>at least &lt;1&gt;</code>", "<q>" + long} {
		assert.Contains(t, page.String(), want, "the page")
	}
	assert.Equal(t, strings.Count(page.String(), "<th scope=col><a "), 2)
	require.NoError(t, fleet.Text(&text, f, false, report.Plain))
	if !strings.HasSuffix(text.String(), "; `nodegate apply` fixes 1 check on 2 nodes)\n") || !strings.Contains(text.String(), " want      at least <1>\n") {
		t.Error(text.String())
	}
}
