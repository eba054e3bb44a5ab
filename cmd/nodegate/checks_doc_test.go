package main

import (
	"fmt"
	"nodegate/checks/catalog"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const checksHeader = `# Checks

Every check by its name. "nodegate explain NAME" says more: symptom, detection, trade-off. At stage boot, the gate's, a judgement of severity
warn is left out: it cannot hold kubelet. Written by "UPDATE=1 go test ./cmd/nodegate".

The last column is where each is shown to fail, and is read from the tests: "VM" is a booted Debian in QEMU that is broken in that way by hand
(images/vm/scenarios), TestTrees real Debian 11, 12 and 13 trees, a test whose name ends in Kernel the kernel in network namespaces, others recorded
nodes. Findings of the audit (kubeproxy.*) are recordings of a real kube-proxy, broken one line at a time. probe.bridge is not in the table: a policy names
its probes; real packets show it (checks/datapath).
`

// TestChecksTable: docs/checks.md lists every check that there is, as
// `nodegate explain` does.
func TestChecksTable(t *testing.T) {
	const file = "../../docs/checks.md"
	all, err := explanations()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString(checksHeader + "\n| name | stages | severity | detects | remedy | source | shown failing |\n|---|---|---|---|---|---|---|\n")
	shown, inVM := shownFailing(t), 0
	seen := map[string]bool{}
	for _, e := range all {
		if seen[e.Name] {
			t.Errorf("two checks are called %s", e.Name)
		}
		seen[e.Name] = true
		if e.Breaks == "" || e.Remedy == "" || e.How == "" || e.Stages == "" || e.Severity == "" {
			t.Errorf("%s is not explained: %+v", e.Name, e)
		}
		where := shown[e.Name]
		if kind, _, _ := strings.Cut(e.Name, "."); slices.Contains([]string{"module", "sysctl", "link"}, kind) && !slices.Contains(catalog.Names(), e.Name) {
			where = append(where, everyRequirement)
		}
		if len(where) == 0 {
			t.Errorf("%s is shown failing nowhere", e.Name)
		}
		if slices.ContainsFunc(where, func(w string) bool { return strings.HasPrefix(w, "VM ") }) {
			inVM++
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s | %s |\n", e.Name, e.Stages, e.Severity, cell(e.Breaks), cell(e.Remedy), cell(e.Source), strings.Join(where, ", "))
	}
	if inVM < 40 {
		t.Errorf("only %d checks are shown failing in a virtual machine", inVM)
	}
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.Split(b.String(), "\n"), strings.Split(string(have), "\n")); d != "" {
		t.Errorf("docs/checks.md is old; run UPDATE=1 go test ./cmd/nodegate\n%s", d)
	}
}

// cell keeps a text in its table cell.
func cell(s string) string {
	return strings.NewReplacer("|", "\\|", "\n", " ").Replace(s)
}
