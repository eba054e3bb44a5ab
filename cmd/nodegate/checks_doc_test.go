package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestChecksTable: docs/checks.md lists every check that there is, as
// `nodegate explain` does.
func TestChecksTable(t *testing.T) {
	const file = "../../docs/checks.md"
	all, err := explanations()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("# Checks\n\nEvery check by its name. `nodegate explain NAME` says more: symptom, detection, trade-off. " +
		"Written by `UPDATE=1 go test ./cmd/nodegate`.\n\n| name | stages | severity | detects | remedy | source |\n|---|---|---|---|---|---|\n")
	seen := map[string]bool{}
	for _, e := range all {
		if seen[e.Name] {
			t.Errorf("two checks are called %s", e.Name)
		}
		seen[e.Name] = true
		if e.Breaks == "" || e.Remedy == "" || e.How == "" || e.Stages == "" || e.Severity == "" {
			t.Errorf("%s is not explained: %+v", e.Name, e)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", e.Name, e.Stages, e.Severity, cell(e.Breaks), cell(e.Remedy), cell(e.Source))
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
