package fleet_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nodegate/cmd/nodegate/internal/fleet"
	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/audit"
	"nodegate/internal/require"
	"nodegate/internal/verdict"
)

// TestOtherPagesInChromium renders the pages besides that of a fleet as a phone and a desktop show them: a preview, one node's report, and
// the drawing of a Service. SCREENSHOTS works as in TestPageInChromium.
func TestOtherPagesInChromium(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		name = filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
		return "file://" + name
	}
	var preview, one, drawing strings.Builder
	changed := merged(t, farm(t, 30, 40)...)
	for i := range 5 {
		changed.Nodes[i].Verdict = verdict.Warn
	}
	words := fleet.Words{Page: "preview", Of: "Preview of a-policy-with-a-long-name.hcl", Wrong: "held or unknown", Fine: "none would be held",
		Verdicts: map[verdict.Verdict]string{verdict.Fail: "held", verdict.Warn: "changed"}}
	require.NoError(t, fleet.Page(&preview, changed, words))
	require.NoError(t, fleet.HTML(&one, merged(t, farm(t, 18, 40)[17])))
	s := audit.Service{Name: "production/a-service-with-a-long-name:http", Protocol: "tcp", Family: "ip", ClusterIP: "10.96.0.9", Port: 80,
		NodePort: 30080, Chains: []string{"KUBE-SVC-AAAAAAAAAAAAAAAA"}, Verdict: verdict.Fail, Findings: []string{"kubeproxy.endpoint.stale"}}
	for i := range 12 {
		s.Endpoints = append(s.Endpoints, audit.Endpoint{Address: fmt.Sprintf("10.0.0.%d:8080", i), Chance: 1.0 / 12, Line: 100 + i,
			Chain: fmt.Sprintf("KUBE-SEP-%016d", i)})
	}
	require.NoError(t, report.ServiceSVG(&drawing, &audit.Judgment{Services: []audit.Service{s}, Findings: []audit.Finding{
		{Name: "kubeproxy.endpoint.stale", Service: s.Name, Message: "endpoint 10.0.0.7:8080, which the API lacks since 12:00:03"}}}))
	pages := map[string]string{"preview": write("preview.html", preview.String()), "one": write("one.html", one.String()),
		"service": write("service.html", "<!doctype html><meta name=viewport content=\"width=device-width\"><body style=margin:0>"+drawing.String())}
	b := startChromium(t)
	for name, url := range pages {
		for _, width := range []int{375, 1400} {
			for _, scheme := range []string{"light", "dark"} {
				b.open(url, width, scheme)
				if got := b.eval("document.documentElement.scrollWidth <= " + fmt.Sprint(width)); got != "true" {
					t.Errorf("%s, %d pixels, %s: wider than the screen", name, width, scheme)
				}
				// No text of the drawing may leave its box, with the fonts that this machine has.
				if got := b.eval("[...document.querySelectorAll('svg g')].every(g => [...g.querySelectorAll('text')].every(t => " +
					"t.getBBox().width + 6 <= g.querySelector('rect').getBBox().width))"); got != "true" {
					t.Errorf("%s, %d pixels: a text is wider than its box", name, width)
				}
				if to := os.Getenv("SCREENSHOTS"); to != "" {
					file := filepath.Join(to, fmt.Sprintf("%s-%d-%s.png", name, width, scheme))
					require.NoError(t, os.WriteFile(file, b.screenshot(width, 900), 0o644))
				}
			}
		}
	}
	b.open(pages["preview"], 1400, "light")
	if got := b.eval("document.title"); !strings.HasPrefix(got, "nodegate preview: Preview of a-policy-with-a-long-name.hcl: ") {
		t.Error(got)
	}
	if got := b.eval("document.querySelector('header p').textContent"); !strings.Contains(got, " 5 changed, ") {
		t.Error(got)
	}
}
