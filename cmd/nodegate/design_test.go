package main

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestPackagesInDesign: docs/design.md names every package, and no other.
func TestPackagesInDesign(t *testing.T) {
	text, err := os.ReadFile("../../docs/design.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n## Packages\n")
	table, _, _ = strings.Cut(table, "\n### ")
	var named []string
	for _, row := range regexp.MustCompile(`(?m)^\| (.*?) \|`).FindAllStringSubmatch(table, -1) {
		for _, m := range regexp.MustCompile("`([a-z0-9/-]+)`").FindAllStringSubmatch(row[1], -1) {
			named = append(named, m[1])
		}
	}
	out, err := exec.CommandContext(t.Context(), "go", "list", "-tags", "vm,release,cluster,torture", "nodegate/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range strings.Fields(string(out)) {
		name := strings.TrimPrefix(path, "nodegate/")
		i := slices.Index(named, name)
		if i < 0 {
			t.Errorf("docs/design.md has no row for %s", name)
			continue
		}
		named = slices.Delete(named, i, i+1)
	}
	for _, name := range named {
		t.Errorf("docs/design.md names %s, which is not a package", name)
	}
}

// TestGlossary: docs/design.md explains at most 30 words, each once.
func TestGlossary(t *testing.T) {
	text, err := os.ReadFile("../../docs/design.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n## Glossary\n")
	table, _, _ = strings.Cut(table, "\n## ")
	rows := regexp.MustCompile(`(?m)^\| ([a-z -]+(?:, [a-z]+)?) \|`).FindAllStringSubmatch(table, -1)
	seen := map[string]bool{"word": true}
	for _, row := range rows[1:] {
		if seen[row[1]] {
			t.Errorf("%s is explained twice", row[1])
		}
		seen[row[1]] = true
	}
	if n := len(rows) - 1; n < 20 || n > 30 {
		t.Errorf("%d words, want 20 to 30", n)
	}
}
