package fleet_test

import (
	"bytes"
	"fmt"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nodegate/cmd/nodegate/internal/fleet"
	"nodegate/internal/assert"
	"nodegate/internal/require"
)

// TestPageInChromium renders the page of 1,000 nodes in the width of a phone and of a desktop, in light and dark mode, without a network.
// If SCREENSHOTS names a directory, the test writes screenshots to it for a review by eye. UPDATE=1 writes the picture of README.
func TestPageInChromium(t *testing.T) {
	f := merged(t, farm(t, 1000, 100)...)
	url := written(t, f)
	b := startChromium(t)
	backgrounds := map[string]bool{}
	for _, width := range []int{375, 1400} {
		for _, scheme := range []string{"light", "dark"} {
			what := fmt.Sprintf("%d pixels, %s", width, scheme)
			b.open(url, width, scheme)
			for _, c := range []struct{ script, want string }{
				{"document.documentElement.scrollWidth <= innerWidth && innerWidth == " + fmt.Sprint(width), "true"},
				{"document.title", "nodegate fleet: 3 of 1000 nodes not passing"},
				{"document.querySelector('header p').textContent",
					"1000 nodes of eu-central-1.compute.internal, 100 checks, stage boot: 1 fail, 2 unknown, 997 pass"},
				// The 1,000 nodes form four groups; seven of the 100 checks have differences.
				{"document.querySelectorAll('#map tbody tr').length", "4"},
				{"document.querySelectorAll('#map thead th a').length", "6"}, // all cells of conntrack.headroom would pass
				{"document.querySelectorAll('article').length", "7"},
				{"document.querySelectorAll('#map td.fail').length + ' ' + document.querySelectorAll('#map td.unknown').length + ' ' + " +
					"document.querySelectorAll('#map td.value').length", "3 1 1"},
				{"document.querySelector('#map tbody th').textContent", "ip-10-0-0-17"},
				{"document.querySelector('#map tbody tr:last-child th summary').textContent", "ip-10-0-0-0 +995"},
				{"document.querySelector('article h3').textContent", "1 module.br_netfilter"},
				{"document.querySelectorAll('#alike li').length", "93"},
				{"document.scripts.length + document.querySelectorAll('link, img, iframe').length", "0"},
				// The first column must stay visible, and the numbers must link to the checks.
				{"getComputedStyle(document.querySelector('#map tbody th')).position", "sticky"},
				{"[...document.querySelectorAll('#map thead a')].every(a => document.querySelector(a.getAttribute('href')))", "true"},
				// Open details must not widen the page either.
				{"document.querySelectorAll('details').forEach(d => d.open = true); document.documentElement.scrollWidth <= innerWidth", "true"},
			} {
				assert.Equal(t, b.eval(c.script), c.want, "%s: %s is", what, c.script)
			}
			backgrounds[scheme+b.eval("getComputedStyle(document.body).backgroundColor")] = true
			b.eval("document.querySelectorAll('details').forEach(d => d.open = false)")
			shown := b.screenshot(width, 1500)
			hues(t, what, shown)
			if dir := os.Getenv("SCREENSHOTS"); dir != "" {
				require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("fleet-%d-%s.png", width, scheme)), shown, 0o644))
			}
		}
	}
	if os.Getenv("UPDATE") != "" {
		b.open(url, 1000, "light")
		require.NoError(t, os.WriteFile("../../../../docs/pictures/report.png", b.screenshot(1000, 640), 0o644))
	}
	assert.True(t, len(backgrounds) == 2, "light and dark look alike: %v", backgrounds)
	for _, asked := range b.asked {
		assert.True(t, asked == url || asked == "about:blank", "the page asked for %s", asked)
	}
	assert.True(t, len(b.asked) >= 4, "requests were not seen: %v", b.asked)
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
	url := written(t, merged(t, reports...))
	b := startChromium(t)
	b.open(url, 360, "dark")
	for _, c := range []struct{ script, want string }{
		{"document.documentElement.scrollWidth <= innerWidth && innerWidth == 360", "true"},
		{"document.querySelectorAll('#map tbody tr').length * document.querySelectorAll('#map thead th a').length > 2000", "true"},
		{"const s = document.querySelector('.scroll'); s.scrollWidth > s.clientWidth && s.clientWidth < 360", "true"},
		{"document.querySelectorAll('#map b b, article b b, code b').length", "0"},
		{"getComputedStyle(document.querySelector('#map .more')).display", "block"},
	} {
		assert.Equal(t, b.eval(c.script), c.want, "%s is", c.script)
	}
}

// written writes the fleet's page to a file and returns its address.
func written(t *testing.T, f fleet.Fleet) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "fleet.html")
	var page bytes.Buffer
	require.NoError(t, fleet.HTML(&page, f))
	require.NoError(t, os.WriteFile(file, page.Bytes(), 0o644))
	return "file://" + file
}

// hues fails if a screenshot lacks one of the four colours of a heat map: nearly pure red, blue, green and violet.
func hues(t *testing.T, what string, shown []byte) {
	t.Helper()
	picture, err := png.Decode(bytes.NewReader(shown))
	require.NoError(t, err)
	seen := map[string]int{}
	all := picture.Bounds()
	for y := all.Min.Y; y < all.Max.Y; y++ {
		for x := all.Min.X; x < all.Max.X; x++ {
			seen[hue(picture, x, y)]++
		}
	}
	for _, h := range []string{"red", "blue", "green", "violet"} {
		if seen[h] < 200 { // at least half a cell of the map
			t.Errorf("%s: nothing is %s in the screenshot: %v", what, h, seen)
		}
	}
}

func hue(picture image.Image, x, y int) string {
	r16, g16, b16, _ := picture.At(x, y).RGBA()
	r, g, b := int(r16>>8), int(g16>>8), int(b16>>8)
	switch {
	case r > g+60 && r > b+60:
		return "red"
	case g > r+10 && g > b+5:
		return "green"
	case b > r+40 && r > g+20:
		return "violet"
	case b > r+60:
		return "blue"
	}
	return "other"
}
