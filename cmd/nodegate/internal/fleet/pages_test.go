package fleet_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nodegate/cmd/nodegate/internal/fleet"
	"nodegate/internal/assert"
	"nodegate/internal/require"
	"nodegate/internal/verdict"
)

// TestOtherPagesInChromium renders the pages besides that of a fleet as a phone and a desktop show them: a preview, and
// one node's report. SCREENSHOTS works as in TestPageInChromium.
func TestOtherPagesInChromium(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		name = filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
		return "file://" + name
	}
	var preview, one strings.Builder
	changed := merged(t, farm(t, 30, 40)...)
	for i := range 5 {
		changed.Nodes[i].Verdict = verdict.Warn
	}
	words := fleet.Words{Page: "preview", Of: "Preview of a-policy-with-a-long-name.hcl", Wrong: "held or unknown", Fine: "none would be held",
		Verdicts: map[verdict.Verdict]string{verdict.Fail: "held", verdict.Warn: "changed"}}
	require.NoError(t, fleet.Page(&preview, changed, words))
	require.NoError(t, fleet.HTML(&one, merged(t, farm(t, 18, 40)[17])))
	var alike strings.Builder
	wrong := fail("swap", "on")
	wrong["source"] = "node.hcl:7"
	require.NoError(t, fleet.Page(&alike, merged(t, reportOf(t, "a", "boot", wrong), reportOf(t, "b", "boot", wrong)), words))
	for text, want := range map[string]bool{"Nodes that differ": false, "All nodes are alike": true, "<b>Policy</b> <code>node.hcl:7</code>": true} {
		assert.True(t, strings.Contains(alike.String(), text) == want, "the page of two nodes that agree has %q: %t", text, !want)
	}
	if text := "40 checks, stage boot: 1 fail, 1 warn, 36 pass"; !strings.Contains(one.String(), "<p>"+text) {
		t.Errorf("the page of one node lacks %q", text)
	}
	pages := map[string]string{"preview": write("preview.html", preview.String()), "one": write("one.html", one.String())}
	b := startChromium(t)
	for name, url := range pages {
		for _, width := range []int{375, 1400} {
			for _, scheme := range []string{"light", "dark"} {
				b.open(url, width, scheme)
				got := b.eval("document.documentElement.scrollWidth <= " + fmt.Sprint(width))
				assert.True(t, got == "true", "%s, %d pixels, %s: wider than the screen", name, width, scheme)
				if to := os.Getenv("SCREENSHOTS"); to != "" {
					file := filepath.Join(to, fmt.Sprintf("%s-%d-%s.png", name, width, scheme))
					require.NoError(t, os.WriteFile(file, b.screenshot(width, 900), 0o644))
				}
			}
		}
	}
	b.open(pages["preview"], 1400, "light")
	got := b.eval("document.title")
	assert.True(t, strings.HasPrefix(got, "nodegate preview: Preview of a-policy-with-a-long-name.hcl: "), "%v", got)
	assert.Contains(t, b.eval("document.querySelector('header p').textContent"), " 5 changed, ")
}
