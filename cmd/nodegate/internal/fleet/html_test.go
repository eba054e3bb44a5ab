package fleet_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"nodegate/cmd/nodegate/internal/fleet"
	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
	"nodegate/internal/verdict"
)

// browser is a page whose script evaluates expressions in two frames. The pages have no script, and forbid them.
const browser = `<body><iframe style="width:375px;height:800px" srcdoc="%[1]s"></iframe><iframe style="width:1400px;height:800px" srcdoc="%[1]s"></iframe>
<script>
onload = () => {
	const all = [frames[0], frames[1]].map(w => %[2]s.map(e => Function('document', 'innerWidth', 'getComputedStyle', 'performance', 'return String(' + e + ')')
		(w.document, w.innerWidth, w.getComputedStyle, w.performance)));
	document.body.replaceChildren(JSON.stringify(all));
}
</script>`

// inChromium shows a page in the widths of a phone and of a desktop, and compares the values of expressions.
func inChromium(t *testing.T, page string, want [][2]string) {
	t.Helper()
	hosttest.NeedProgram(t, "chromium")
	want = append([][2]string{
		{"document.scripts.length + document.querySelectorAll('link, img, iframe').length + performance.getEntriesByType('resource').length", "0"},
		{"document.documentElement.scrollWidth <= innerWidth", "true"},
		// Open details must not widen the page either.
		{"(document.querySelectorAll('details').forEach(d => d.open = true), document.documentElement.scrollWidth <= innerWidth)", "true"},
	}, want...)
	var expressions []string
	for _, w := range want {
		expressions = append(expressions, w[0])
	}
	list, err := json.Marshal(expressions)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "frames.html")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, browser, html.EscapeString(page), list), 0o644))
	out, err := exec.CommandContext(t.Context(), "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
		"--disable-background-networking", "--user-data-dir="+t.TempDir(), "--window-size=1500,1700", "--dump-dom", "file://"+file).Output()
	require.NoError(t, err)
	_, body, _ := strings.Cut(string(out), "<body>")
	body, _, _ = strings.Cut(body, "</body>")
	var got [2][]string
	require.NoError(t, json.Unmarshal([]byte(html.UnescapeString(body)), &got), "%.200s", body)
	for n, width := range []string{"a phone", "a desktop"} {
		for i, w := range want {
			assert.Equal(t, got[n][i], w[1], "as %s: %s is", width, w[0])
		}
	}
}

// TestPageInChromium renders the page of 1,000 nodes in the width of a phone and of a desktop, without a network.
func TestPageInChromium(t *testing.T) {
	inChromium(t, asPage(t, merged(t, farm(t, 1000, 100)...)), [][2]string{
		{"document.title", "nodegate fleet: 3 of 1000 nodes not passing"},
		{"document.querySelector('header p').textContent",
			"1000 nodes of eu-central-1.compute.internal, 100 checks, stage boot: 1 fail, 2 unknown, 997 pass"},
		// The 1,000 nodes form four groups; seven of the 100 checks have differences.
		{"document.querySelectorAll('#map tbody tr').length", "4"},
		{"document.querySelectorAll('#map thead th a').length", "6"}, // all cells of conntrack.headroom would pass
		{"document.querySelectorAll('article').length", "7"},
		{"['fail', 'unknown', 'value'].map(c => document.querySelectorAll('#map td.' + c).length)", "3,1,1"},
		{"document.querySelector('#map tbody th').textContent", "ip-10-0-0-17"},
		{"document.querySelector('#map tbody tr:last-child th summary').textContent", "ip-10-0-0-0 +995"},
		{"document.querySelector('article h3').textContent", "1 module.br_netfilter"},
		{"document.querySelectorAll('#alike li').length", "93"},
		// The first column must stay visible, the numbers must link to the checks, and the colours must differ.
		{"getComputedStyle(document.querySelector('#map tbody th')).position", "sticky"},
		{"[...document.querySelectorAll('#map thead a')].every(a => document.querySelector(a.getAttribute('href')))", "true"},
		{"new Set(['fail', 'unknown', 'value', 'pass'].map(c => getComputedStyle(document.querySelector('#map td.' + c)).backgroundColor)).size", "4"},
		{"[...document.styleSheets[0].cssRules].some(r => /dark/.test(r.conditionText))", "true"},
	})
}

// TestWidePage: a map of 300 nodes that differ in 80 checks scrolls by itself and does not
// widen the page; neither does a name without spaces, or markup.
func TestWidePage(t *testing.T) {
	var reports []string
	long := strings.Repeat("x", 200) + "<b>"
	for n := range 300 {
		var results []result
		for c := range 80 {
			got := "1"
			if (n*7+c*13)%29 == 0 {
				got = long + fmt.Sprint(n)
			}
			results = append(results, pass(fmt.Sprintf("sysctl.%s.%d", long, c), got))
		}
		reports = append(reports, reportOf(t, fmt.Sprintf("%s%d", long, n), "boot", results...))
	}
	inChromium(t, asPage(t, merged(t, reports...)), [][2]string{
		{"document.querySelectorAll('#map tbody tr').length * document.querySelectorAll('#map thead th a').length > 2000", "true"},
		{"(s => s.scrollWidth > s.clientWidth && s.clientWidth < innerWidth)(document.querySelector('.scroll'))", "true"},
		{"document.querySelectorAll('#map b b, article b b, code b').length", "0"},
		{"getComputedStyle(document.querySelector('#map .more')).display", "block"},
	})
}

// TestOtherPages: a preview, two nodes that agree, and the report of one node.
func TestOtherPages(t *testing.T) {
	var preview, alike strings.Builder
	changed := merged(t, farm(t, 30, 40)...)
	for i := range 5 {
		changed.Nodes[i].Verdict = verdict.Warn
	}
	words := fleet.Words{Page: "preview", Of: "Preview of a-policy-with-a-long-name.hcl", Wrong: "held or unknown", Fine: "none would be held",
		Verdicts: map[verdict.Verdict]string{verdict.Fail: "held", verdict.Warn: "changed"}}
	require.NoError(t, fleet.Page(&preview, changed, words))
	one := asPage(t, merged(t, farm(t, 18, 40)[17]))
	wrong := fail("swap", "on")
	wrong["source"] = "node.hcl:7"
	require.NoError(t, fleet.Page(&alike, merged(t, reportOf(t, "a", "boot", wrong), reportOf(t, "b", "boot", wrong)), words))
	for text, want := range map[string]bool{"Nodes that differ": false, "All nodes are alike": true, "<b>Policy</b> <code>node.hcl:7</code>": true} {
		assert.True(t, strings.Contains(alike.String(), text) == want, "the page of two nodes that agree has %q: %t", text, !want)
	}
	assert.Contains(t, one, "<p>40 checks, stage boot: 1 fail, 1 warn, 36 pass", "the page of one node")
	inChromium(t, one, nil)
	inChromium(t, preview.String(), [][2]string{
		{"document.title.startsWith('nodegate preview: Preview of a-policy-with-a-long-name.hcl: ')", "true"},
		{"document.querySelector('header p').textContent.includes(' 5 changed, ')", "true"},
	})
}

func asPage(t *testing.T, f fleet.Fleet) string {
	t.Helper()
	var page bytes.Buffer
	require.NoError(t, fleet.HTML(&page, f))
	return page.String()
}
