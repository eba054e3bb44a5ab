package docs_test

import (
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"nodegate/checks/catalog"
	"nodegate/internal/assert"
	"nodegate/internal/require"
)

// shownFailing has a line for each check: its name, and the tests that show it failing. "VM" is a Debian machine in QEMU that is broken in
// that way (internal/e2e/vm/scenarios).
const shownFailing = "testdata/shown-failing.txt"

// TestChecks writes docs/checks.md from the texts of `nodegate explain`, and requires that shownFailing names existing tests for each check.
func TestChecks(t *testing.T) {
	all, err := catalog.Explain()
	require.NoError(t, err)
	text := require.ReadFile(t, shownFailing)
	shown := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, tests, _ := strings.Cut(strings.TrimSpace(line), " ")
		shown[name] = tests
	}
	tests, inVM := testNames(t), 0
	for _, e := range all {
		assert.True(t, e.Breaks != "" && e.Remedy != "" && e.How != "" && e.Stages != "" && e.Severity != "",
			"%s lacks a text that checks.Problem requires: %+v", e.Name, e)
		if strings.Contains(shown[e.Name], "VM ") {
			inVM++
		}
		for name := range strings.SplitSeq(shown[e.Name], ", ") {
			if name == "" {
				t.Errorf("no test shows %s failing: add a line `%s TEST` to docs/%s", e.Name, e.Name, shownFailing)
			} else if scenario, is := strings.CutPrefix(name, "VM "); is {
				breaks(t, scenario, e.Name)
			} else if !slices.Contains(tests, name) {
				t.Errorf("docs/%s: %s names the test %s, which does not exist", shownFailing, e.Name, name)
			}
		}
		delete(shown, e.Name)
	}
	coverage := require.ReadFile(t, "../internal/e2e/README.md")
	for _, m := range regexp.MustCompile("(?m)^\\| [^`|]* \\| ((?:`[^`]+`(?:, )?)+)").FindAllStringSubmatch(string(coverage), -1) {
		for name := range strings.SplitSeq(m[1], ", ") {
			assert.True(t, slices.ContainsFunc(all, func(e catalog.Explanation) bool { return e.Name == strings.Trim(name, "`") }),
				"internal/e2e/README.md names the unknown check %s: correct that row", name)
		}
	}
	for name := range shown {
		t.Errorf("docs/%s has %s, which is not a check, or has it twice", shownFailing, name)
	}
	assert.True(t, inVM >= 40, "only %d checks are shown failing in a virtual machine, want at least 40", inVM)
	const file = "checks.md"
	page := checksPage(all)
	assert.Golden(t, file, page)
}

// checksPage returns docs/checks.md, with a heading for each subject and each check, so that other pages can link to it.
func checksPage(all []catalog.Explanation) string {
	var b strings.Builder
	b.WriteString("# Checks\n\nGenerated from the texts of `nodegate explain NAME`, which prints more: detection and trade-off.\n" +
		"Stage boot is the gate's; there most warnings are left out, because they cannot hold the node.\n")
	subjectOf := func(e catalog.Explanation) string { return strings.SplitN(e.Name, ".", 2)[0] }
	subject := ""
	for _, e := range slices.SortedStableFunc(slices.Values(all), func(a, b catalog.Explanation) int {
		return strings.Compare(subjectOf(a), subjectOf(b))
	}) {
		if s := subjectOf(e); s != subject {
			subject = s
			fmt.Fprintf(&b, "\n## %s\n", subject)
		}
		fmt.Fprintf(&b, "\n### %s\n\n%s\n\n%s\n", e.Name, wrap(fmt.Sprintf("*%s; stages: %s.* %s", e.Severity, e.Stages, sentence(e.Breaks))),
			wrap("To do: "+sentence(e.Remedy)))
		if e.Source != "" {
			fmt.Fprintf(&b, "\nSource: %s\n", e.Source)
		}
	}
	b.WriteString("\n## Former names\n\nA policy that has one loads, with a warning.\n\n")
	for _, name := range slices.Sorted(maps.Keys(catalog.Renamed())) {
		fmt.Fprintf(&b, "- `%s`: now `%s`\n", name, catalog.Renamed()[name])
	}
	for _, name := range slices.Sorted(maps.Keys(catalog.Dropped())) {
		b.WriteString(wrap(fmt.Sprintf("- `%s`: gone; %s", name, catalog.Dropped()[name])) + "\n")
	}
	return b.String()
}

// sentence returns a text on one line that ends with a full stop.
func sentence(s string) string {
	return strings.TrimSuffix(strings.Join(strings.Fields(s), " "), ".") + "."
}

// wrap breaks a paragraph into lines of at most 120 bytes, if its words allow it.
func wrap(s string) string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(s) {
		if line != "" && len(line)+1+len(word) > 120 {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return strings.Join(append(lines, line), "\n")
}

// breaks fails the test unless a boot script of the scenario mentions the check.
func breaks(t *testing.T, scenario, check string) {
	t.Helper()
	scripts, err := filepath.Glob("../internal/e2e/vm/scenarios/" + scenario + "/boot*.sh")
	require.NoError(t, err)
	for _, script := range scripts {
		text := require.ReadFile(t, script)
		if strings.Contains(string(text), strings.TrimPrefix(check, "sysctl.")) {
			return
		}
	}
	t.Errorf("docs/%s: %s names the scenario %s, whose boot scripts in internal/e2e/vm/scenarios do not mention the check",
		shownFailing, check, scenario)
}

// testNames returns the names of all tests, and of the files with tests or scripts of tests.
func testNames(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, path := range testFiles(t) {
		names = append(names, filepath.Base(path))
		text := require.ReadFile(t, path)
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllSubmatch(text, -1) {
			names = append(names, string(m[1]))
		}
	}
	return names
}

// testFiles returns the paths of all files with tests or scripts of tests.
func testFiles(t *testing.T) []string {
	t.Helper()
	var files []string
	for _, root := range []string{"../checks", "../cmd", "../internal", "../images", "../policy", "../units", "."} {
		require.NoError(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if strings.HasSuffix(path, ".txtar") || strings.HasSuffix(path, "_test.go") {
				files = append(files, path)
			}
			return err
		}))
	}
	return files
}
