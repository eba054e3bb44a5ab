package fleet_test

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"nodegate/cmd/nodegate/internal/fleet"
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
<q>n1</q>, <q>n2</q>, <q>n3</q>, <q>n4</q>, <q>n5</q>, <q>n6</q>, <q>n7</q></details></th>
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
