package docs_test

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nodegate/checks/catalog"
	"nodegate/internal/require"
)

const checksHeader = `# Checks

Every check, with its name. "nodegate explain NAME" prints more: symptom, detection, trade-off. Stage boot is the gate's; there most
warnings are left out, because they cannot hold the node. A check that judges the packet filter's rules may read them while
kube-proxy or a CNI writes them: if it does not pass, it is repeated a second later, until it passes or gives the same result twice.
"UPDATE=1 go test ./docs" writes all columns except the last.

The last column is edited manually: it names the tests that show the check failing. "VM" is a Debian machine in QEMU that is broken in
that way (internal/e2e/vm/scenarios); TestTrees uses real file trees of Debian 11, 12 and 13; a test whose name ends in Kernel uses the
kernel in network namespaces; the others use recorded nodes. The findings of the audit (kubeproxy.*) are tested with recordings of a real
kube-proxy, broken one line at a time. probe.bridge is not in the table, because a policy names its probes; a test with real packets shows
it failing (checks/datapath).
`

// TestChecksTable requires that docs/checks.md lists every check with the texts of `nodegate explain`,
// and that each row names existing tests that show the check failing.
func TestChecksTable(t *testing.T) {
	const file = "checks.md"
	all, err := catalog.Explain()
	require.NoError(t, err)
	have, err := os.ReadFile(file)
	require.NoError(t, err)
	shown := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` .*\\| (.*) \\|$").FindAllStringSubmatch(string(have), -1) {
		shown[row[1]] = row[2]
	}
	tests := testNames(t)
	var b strings.Builder
	b.WriteString(checksHeader + "\n| name | stages | severity | detects | remedy | source | shown failing |\n|---|---|---|---|---|---|---|\n")
	seen := map[string]bool{}
	inVM := 0
	for _, e := range all {
		if seen[e.Name] {
			t.Errorf("two checks have the name %s", e.Name)
		}
		seen[e.Name] = true
		if e.Breaks == "" || e.Remedy == "" || e.How == "" || e.Stages == "" || e.Severity == "" {
			t.Errorf("%s lacks a text that checks.Problem requires: %+v", e.Name, e)
		}
		if strings.Contains(shown[e.Name], "VM ") {
			inVM++
		}
		for name := range strings.SplitSeq(shown[e.Name], ", ") {
			if name == "" {
				t.Errorf("no test shows %s failing: edit docs/checks.md, name a test in the last column of its row "+
					"(UPDATE=1 go test ./docs adds a missing row)", e.Name)
			} else if scenario, is := strings.CutPrefix(name, "VM "); is {
				breaks(t, scenario, e.Name)
			} else if !slices.Contains(tests, name) {
				t.Errorf("docs/checks.md: the row of %s names the test %s, which does not exist: correct its last column", e.Name, name)
			}
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s | %s |\n",
			e.Name, e.Stages, e.Severity, cell(e.Breaks), cell(shortRemedy(e.Remedy)), cell(e.Source), shown[e.Name])
	}
	var former []string
	for _, name := range slices.Sorted(maps.Keys(catalog.Renamed())) {
		former = append(former, fmt.Sprintf("`%s` is now `%s`", name, catalog.Renamed()[name]))
	}
	fmt.Fprintf(&b, "\nFormer names keep working in policies and flags, with a warning: %s.\n", strings.Join(former, ", "))
	dropped := catalog.Dropped()
	for _, name := range slices.Sorted(maps.Keys(dropped)) {
		if seen[name] {
			t.Errorf("%s is a check, and catalog.Dropped has it", name)
		}
		dropped[name] = fmt.Sprintf("`%s` (%s)", name, dropped[name])
	}
	fmt.Fprintf(&b, "\nA policy that names a check which has gone loads, with a warning: %s.\n", strings.Join(slices.Sorted(maps.Values(dropped)), ", "))
	// The text below the table is not generated.
	if _, more, is := strings.Cut(string(have), "\n## "); is {
		b.WriteString("\n## " + more)
	}
	coverage, err := os.ReadFile("../internal/e2e/README.md")
	require.NoError(t, err)
	for _, m := range regexp.MustCompile("(?m)^\\| [^`|]* \\| ((?:`[^`]+`(?:, )?)+)").FindAllStringSubmatch(string(coverage), -1) {
		for name := range strings.SplitSeq(m[1], ", ") {
			if !seen[strings.Trim(name, "`")] {
				t.Errorf("internal/e2e/README.md names the unknown check %s: correct that row", name)
			}
		}
	}
	if inVM < 40 {
		t.Errorf("only %d checks are shown failing in a virtual machine, want at least 40", inVM)
	}
	if os.Getenv("UPDATE") != "" {
		require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o644))
	} else if d := cmp.Diff(strings.Split(b.String(), "\n"), strings.Split(string(have), "\n")); d != "" {
		t.Errorf("docs/checks.md differs from the checks' texts; run `UPDATE=1 go test ./docs` (-new, +docs/checks.md)\n%s", d)
	}
}

// shortRemedy replaces the commands that restart kube-proxy, which many remedies share, by links to the end of the page.
func shortRemedy(text string) string {
	text = regexp.MustCompile("\\(rules stay in place\\): `kubectl cordon[^`]*`; after an audit passes, run `kubectl uncordon NODE`").
		ReplaceAllString(text, "([how](#after-a-dead-watch))")
	return regexp.MustCompile("\\(rules stay in place\\): `kubectl[^`]*`").ReplaceAllString(text, "([how](#restart-kube-proxy))")
}

// breaks fails the test unless a boot script of the scenario mentions the check.
func breaks(t *testing.T, scenario, check string) {
	t.Helper()
	scripts, err := filepath.Glob("../internal/e2e/vm/scenarios/" + scenario + "/boot*.sh")
	require.NoError(t, err)
	for _, script := range scripts {
		text, err := os.ReadFile(script)
		require.NoError(t, err)
		if strings.Contains(string(text), strings.TrimPrefix(check, "sysctl.")) {
			return
		}
	}
	t.Errorf("docs/checks.md: the row of %s names the scenario %s, whose boot scripts in internal/e2e/vm/scenarios do not mention the check",
		check, scenario)
}

// testNames returns the names of all tests, and of the files with tests or scripts of tests.
func testNames(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, root := range []string{"../checks", "../cmd", "../internal", "../images", "../policy", "../units", "."} {
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if strings.HasSuffix(path, ".txtar") {
				names = append(names, filepath.Base(path))
			}
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			names = append(names, filepath.Base(path))
			text, err := os.ReadFile(path)
			for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllSubmatch(text, -1) {
				names = append(names, string(m[1]))
			}
			return err
		})
		require.NoError(t, err)
	}
	return names
}

// cell escapes a text for a table cell.
func cell(s string) string {
	return strings.NewReplacer("|", "\\|", "\n", " ").Replace(s)
}
