package kops

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"nodegate/internal/assert"
	"nodegate/internal/require"
)

// compareGolden compares got with the .golden file beside file; UPDATE=1 rewrites it.
func compareGolden(t *testing.T, file, got string) {
	t.Helper()
	name := strings.TrimSuffix(file, ".yaml") + ".golden"
	if os.Getenv("UPDATE") != "" {
		require.NoError(t, os.WriteFile(name, []byte(got), 0o644))
	}
	want, err := os.ReadFile(name)
	require.NoError(t, err)
	assert.Diff(t, strings.Split(got, "\n"), strings.Split(string(want), "\n"), "%s (UPDATE=1 rewrites it)", name)
}

func readFiles(t *testing.T, pattern string) map[string][]byte {
	t.Helper()
	names, err := filepath.Glob(pattern)
	require.True(t, err == nil && len(names) != 0, "%s: %v, %v", pattern, names, err)
	all := map[string][]byte{}
	for _, n := range names {
		text, err := os.ReadFile(n)
		require.NoError(t, err)
		all[n] = text
	}
	return all
}

func printReview(r Review) string {
	var b strings.Builder
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "%d:%d: %s: %s\n    fix: %s\n", f.Line, f.Column, f.Trap, f.What, f.Do)
	}
	return b.String()
}

// TestTraps compares the position and the text of every trap.
func TestTraps(t *testing.T) {
	for name, text := range readFiles(t, "testdata/traps/*.yaml") {
		r, err := Lint(text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		compareGolden(t, name, printReview(r))
	}
}

// TestEveryTrapHasACase finds all traps in the source and demands a golden file for each.
func TestEveryTrapHasACase(t *testing.T) {
	found := 0
	for _, source := range readFiles(t, "*.go") {
		for _, m := range regexp.MustCompile(`l\.addFinding(?:At)?\([^"]*?"([a-z0-9-]+)",`).FindAllSubmatch(source, -1) {
			found++
			want := []byte(": " + string(m[1]) + ": ")
			if g, err := os.ReadFile("testdata/traps/" + string(m[1]) + ".golden"); err != nil || !bytes.Contains(g, want) {
				t.Errorf("trap %s has no case of its own: %v", m[1], err)
			}
		}
	}
	assert.True(t, found >= 13, "found %d traps in the source: the pattern of this test no longer fits", found)
}

// TestWrong checks that invalid manifests are refused, each mistake with its position.
func TestWrong(t *testing.T) {
	for name, text := range readFiles(t, "testdata/wrong/*.yaml") {
		r, err := Lint(text)
		if err == nil || len(r.Findings) > 0 {
			t.Errorf("%s: %v, %v", name, r, err)
			continue
		}
		if m := (Mistake{}); !errors.As(err, &m) || m.Line < 1 || m.Column < 1 {
			t.Errorf("%s: no position: %v", name, err)
		}
		compareGolden(t, name, err.Error()+"\n")
	}
}

// TestSwitches: booleans follow YAML 1.1. A disabled hook has no traps, because kops makes no unit of it.
func TestSwitches(t *testing.T) {
	const hook = "apiVersion: kops.k8s.io/v1alpha2\nkind: Cluster\nspec:\n  hooks:\n  - name: a\n    SWITCH\n    manifest: |\n" +
		"      [Unit]\n      Before=kubelet.service\n      [Service]\n      ExecStart=/bin/true\n      INSTALL\n"
	for given, want := range map[[2]string]string{
		{"useRawManifest: True", "[Install]\n      WantedBy=multi-user.target"}: "before-kubelet",
		{"useRawManifest: yes", "[Install]\n      WantedBy=multi-user.target"}:  "before-kubelet",
		{"useRawManifest: true", ""}: "before-kubelet no-install",
		{"disabled: true", ""}:       "",
		{"disabled: yes", ""}:        "",
		{"disabled: no", ""}:         "before-kubelet no-install",
	} {
		r, err := Lint([]byte(strings.NewReplacer("SWITCH", given[0], "INSTALL", given[1]).Replace(hook)))
		var got []string
		for _, f := range r.Findings {
			got = append(got, f.Trap)
		}
		slices.Sort(got)
		assert.True(t, err == nil && strings.Join(got, " ") == want, "%q: %v, %v", given, got, err)
	}
}

// TestSameWithCRLF: CRLF line ends change neither the traps nor their positions.
func TestSameWithCRLF(t *testing.T) {
	for name, text := range readFiles(t, "testdata/traps/*.yaml") {
		want, err := Lint(text)
		require.NoError(t, err)
		got, err := Lint(bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n")))
		if err != nil || printReview(got) != printReview(want) {
			t.Errorf("%s with CRLF: %v\n%s", name, err, cmp.Diff(printReview(want), printReview(got)))
		}
	}
}

// TestLarge: a manifest of 10 MB in many documents is read to its end; one above MaxSize is refused.
func TestLarge(t *testing.T) {
	trap, err := os.ReadFile("testdata/traps/no-module.yaml")
	require.NoError(t, err)
	group := "---\napiVersion: kops.k8s.io/v1alpha3\nkind: InstanceGroup\nspec:\n  fileAssets:\n  - name: a\n    path: /etc/a\n    " +
		"content: |\n" +
		strings.Repeat("      "+strings.Repeat("x", 990)+"\n", 1000)
	text := []byte(strings.Repeat(group, 11) + "---\n" + string(trap))
	require.True(t, len(text) >= 10e6, "only %d bytes", len(text))
	began := time.Now()
	r, err := Lint(text)
	if err != nil || r.InstanceGroups != 11 || r.Clusters != 1 || len(r.Findings) != 1 || r.Findings[0].Trap != "no-module" {
		t.Fatalf("%+v, %v", r, err)
	}
	if line := bytes.Count(text[:bytes.Index(text, []byte("net.bridge"))], []byte("\n")) + 1; r.Findings[0].Line != line {
		t.Errorf("finding on line %d, want %d", r.Findings[0].Line, line)
	}
	t.Logf("%d bytes in %s", len(text), time.Since(began))
	if _, err := Lint(make([]byte, MaxSize+1)); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("too large: %v", err)
	}
}

// TestMemory: a manifest of many entries, lines or repeated traps is refused before it takes the machine's memory.
func TestMemory(t *testing.T) {
	const head = "apiVersion: kops.k8s.io/v1alpha2\nkind: Cluster\nspec:\n"
	unit := "    manifest: |\n" + strings.Repeat("      ExecStart=/sbin/ethtool\n", 50_000)
	for what, c := range map[string]struct{ text, want string }{
		"entries on one line": {head + "  sysctlParameters: [" + strings.Repeat("a,", 14<<20) + "a]\n",
			"4:1: more than 250000 lines and entries; is this a cluster's manifest?"},
		"entries of a list": {head + "  sysctlParameters:\n" + strings.Repeat("  - a=1\n", 3<<20),
			"125001:1: more than 250000 lines and entries; is this a cluster's manifest?"},
		"mappings": {head + "  a: [" + strings.Repeat("{a: b}, ", 3<<20) + "a]\n", "4:1: more than 250000 lines"},
		"lines of a unit": {head + "  hooks:\n  - name: a\n    manifest: |\n" + strings.Repeat("      a=\n", 3<<20),
			"249995:1: more than 250000 lines"},
		"traps by aliases": {head + "  hooks:\n  - &a\n    name: a\n" + unit + strings.Repeat("  - *a\n", 20),
			": more than 250000 traps; remove the aliases"},
		"traps, just enough": {head + "  hooks:\n  - &a\n    name: a\n" + unit + strings.Repeat("  - *a\n", 3), ""},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Lint([]byte(c.text))
		runtime.ReadMemStats(&after)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
		if used := (after.TotalAlloc - before.TotalAlloc) >> 20; used > 512 {
			t.Errorf("%s: allocated %d MiB", what, used)
		}
	}
}

// TestGated: if a drop-in gates kubelet, Before= in a hook is only an ordering and not a trap.
func TestGated(t *testing.T) {
	text, err := os.ReadFile("testdata/traps/before-kubelet.yaml")
	require.NoError(t, err)
	asset := "  fileAssets:\n  - name: gate\n    path: /etc/systemd/system/kubelet.service.d/10-x.conf\n    roles: [ControlPlane, Node]\n"
	drop := "[Service]\nExecStartPre=/bin/true\n"
	for _, gate := range []string{
		asset + "    content: |\n      [Service]\n      ExecStartPre=/bin/true\n",
		asset + "    isBase64: true\n    content: " + base64.RawStdEncoding.EncodeToString([]byte(drop)) + "\n",
	} {
		r, err := Lint(append(slices.Clone(text), gate...))
		require.NoError(t, err)
		for _, f := range r.Findings {
			assert.True(t, f.Trap != "before-kubelet" || f.Line <= 10, "Before= beside a gate: %+v\n%s", f, gate)
		}
	}
}

// TestTimed: a service that a timer starts needs no [Install]. If the timer is disabled or has another name, it does.
func TestTimed(t *testing.T) {
	const service = "apiVersion: kops.k8s.io/v1alpha3\nkind: Cluster\nspec:\n  hooks:\n  - name: tell.service\n    useRawManifest: true\n" +
		"    manifest: |\n      [Service]\n      ExecStart=/bin/true\n"
	timer := func(name, more string) string {
		return "  - name: " + name + "\n    useRawManifest: true\n" + more +
			"    manifest: |\n      [Timer]\n      OnBootSec=1\n      [Install]\n      WantedBy=timers.target\n"
	}
	for more, traps := range map[string]int{
		"": 1, timer("tell.timer", ""): 0, timer("tell.timer", "    enabled: false\n"): 1, timer("other.timer", ""): 1,
	} {
		r, err := Lint([]byte(service + more))
		if err != nil || len(r.Findings) != traps || traps == 1 && r.Findings[0].Trap != "no-install" {
			t.Errorf("%+v, %v of\n%s", r, err, more)
		}
	}
}

func FuzzLint(f *testing.F) {
	for _, pattern := range []string{"testdata/traps/*.yaml", "testdata/wrong/*.yaml"} {
		names, _ := filepath.Glob(pattern)
		for _, n := range names {
			text, err := os.ReadFile(n)
			require.NoError(f, err)
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := Lint(text)
		lines := bytes.Count(text, []byte("\n")) + bytes.Count(text, []byte("\r")) + 2
		var m Mistake
		assert.True(t, err == nil || errors.As(err, &m), "an error without a position: %v", err)
		for _, f := range r.Findings {
			if f.Line < 1 || f.Line > lines || f.Column < 1 || f.Trap == "" || f.What == "" || f.Do == "" {
				t.Errorf("%+v in %d lines", f, lines)
			}
		}
	})
}
