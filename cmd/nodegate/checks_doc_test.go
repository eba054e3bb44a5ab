package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nodegate/checks/catalog"
)

const checksHeader = `# Checks

Every check by its name. "nodegate explain NAME" says more: symptom, detection, trade-off. At stage boot, the gate's, a problem of severity
warn is left out: it cannot hold kubelet. A check that judges the packet filter's rules, which kube-proxy or a CNI may just be writing, looks again a
second later where it does not pass, until it passes or says the same twice. "UPDATE=1 go test ./cmd/nodegate" writes all columns but the last.

The last column is written by hand: the tests that show each check failing. "VM" is a booted Debian in QEMU that is broken in that way
(internal/e2e/vm/scenarios), TestTrees real Debian 11, 12 and 13 trees, a test whose name ends in Kernel the kernel in network namespaces,
others recorded nodes. Findings of the audit (kubeproxy.*) are recordings of a real kube-proxy, broken one line at a time. probe.bridge
is not in the table, because a policy names its probes; real packets show it failing (checks/datapath).
`

// TestChecksTable: docs/checks.md lists every check, as `nodegate explain` does, and
// names tests that exist.
func TestChecksTable(t *testing.T) {
	const file = "../../docs/checks.md"
	all, err := catalog.Explain()
	if err != nil {
		t.Fatal(err)
	}
	have, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
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
			t.Errorf("duplicate check %s", e.Name)
		}
		seen[e.Name] = true
		if e.Breaks == "" || e.Remedy == "" || e.How == "" || e.Stages == "" || e.Severity == "" {
			t.Errorf("%s has an incomplete explanation: %+v", e.Name, e)
		}
		if shown[e.Name] == "" {
			t.Errorf("no test shows that %s fails; name one in the last column of %s", e.Name, file)
		}
		if strings.Contains(shown[e.Name], "VM ") {
			inVM++
		}
		for name := range strings.SplitSeq(shown[e.Name], ", ") {
			if scenario, is := strings.CutPrefix(name, "VM "); is {
				breaks(t, scenario, e.Name)
			} else if !slices.Contains(tests, name) {
				t.Errorf("%s names the test %s, which does not exist", e.Name, name)
			}
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s | %s |\n",
			e.Name, e.Stages, e.Severity, cell(e.Breaks), cell(e.Remedy), cell(e.Source), shown[e.Name])
	}
	// The text after the table is not generated. The checks that it names must exist.
	if _, byHand, is := strings.Cut(string(have), "\n## "); is {
		b.WriteString("\n## " + byHand)
		for _, m := range regexp.MustCompile("(?m)^\\| [^`|]* \\| ((?:`[^`]+`(?:, )?)+)").FindAllStringSubmatch(byHand, -1) {
			for name := range strings.SplitSeq(m[1], ", ") {
				if !seen[strings.Trim(name, "`")] {
					t.Errorf("%s names the check %s, which does not exist", file, name)
				}
			}
		}
	}
	if inVM < 40 {
		t.Errorf("only %d checks have a failing test in a virtual machine", inVM)
	}
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if d := cmp.Diff(strings.Split(b.String(), "\n"), strings.Split(string(have), "\n")); d != "" {
		t.Errorf("docs/checks.md is outdated; run UPDATE=1 go test ./cmd/nodegate\n%s", d)
	}
}

// breaks fails the test unless a virtual machine scenario names the check.
func breaks(t *testing.T, scenario, check string) {
	t.Helper()
	scripts, err := filepath.Glob("../../internal/e2e/vm/scenarios/" + scenario + "/boot*.sh")
	if err != nil {
		t.Fatal(err)
	}
	for _, script := range scripts {
		text, err := os.ReadFile(script)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), strings.TrimPrefix(check, "sysctl.")) {
			return
		}
	}
	t.Errorf("the scenario %s does not break %s", scenario, check)
}

// testNames returns the names of the tests of the checks and of the images.
func testNames(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, root := range []string{
		"../../checks", "../../cmd/nodegate/internal/audit", "../../internal/kube", "../../internal/proxyrules", "../../cmd/nodegate/internal/audit/settle", "../../images", "../../internal/e2e",
	} {
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllSubmatch(text, -1) {
				names = append(names, string(m[1]))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return names
}

// cell escapes a text for a table cell.
func cell(s string) string {
	return strings.NewReplacer("|", "\\|", "\n", " ").Replace(s)
}
