package docs_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/require"
)

// TestGlossary: docs/design.md explains at most 30 words, each once.
func TestGlossary(t *testing.T) {
	text := require.ReadFile(t, "design.md")
	_, table, _ := strings.Cut(string(text), "\n## Glossary\n")
	table, _, _ = strings.Cut(table, "\n## ")
	rows := regexp.MustCompile(`(?m)^\| ([a-z -]+(?:, [a-z]+)?) \|`).FindAllStringSubmatch(table, -1)
	seen := map[string]bool{"word": true}
	for _, row := range rows[1:] {
		assert.True(t, !seen[row[1]], "%s is explained twice", row[1])
		seen[row[1]] = true
	}
	n := len(rows) - 1
	assert.True(t, n >= 20 && n <= 30, "%d words, want 20 to 30", n)
}

// TestBudgets: no subject of docs/design.md has more lines that ship than its budget, and each file that ships belongs to one. All
// other Go files, tests and harness, have one budget together.
func TestBudgets(t *testing.T) {
	text := require.ReadFile(t, "design.md")
	_, table, _ := strings.Cut(string(text), "\n## Budgets\n")
	table, _, _ = strings.Cut(table, "\n## ")
	budgets, used, of := map[string]int{}, map[string]int{}, map[string]string{}
	for _, row := range regexp.MustCompile(`(?m)^\| (\S.*?) \| (\d+) \|`).FindAllStringSubmatch(table, -1) {
		budgets[row[1]], _ = strconv.Atoi(row[2])
		for _, m := range regexp.MustCompile("`([a-z0-9/-]+)`").FindAllStringSubmatch(row[1], -1) {
			of[m[1]] = row[1]
		}
	}
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f",
		`{{if and .Module .Module.Main}}{{$dir := .Dir}}{{range .GoFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}{{end}}`, "nodegate/cmd/nodegate").Output()
	require.NoError(t, err)
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	ships := map[string]bool{}
	for _, name := range strings.Fields(string(out)) {
		ships[strings.TrimPrefix(name, root+"/")] = true
	}
	for _, top := range []string{"cmd", "images", "checks", "units", "policy", "internal", "docs"} {
		err := filepath.WalkDir(root+"/"+top, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") {
				return err
			}
			content, err := os.ReadFile(name)
			name = strings.TrimPrefix(name, root+"/")
			subject := "tests and harness"
			if ships[name] {
				dir := filepath.Dir(name)
				for of[dir] == "" && dir != "." {
					dir = filepath.Dir(dir)
				}
				subject = of[dir]
			}
			used[subject] += strings.Count(string(content), "\n")
			return err
		})
		require.NoError(t, err)
	}
	for subject, lines := range used {
		t.Logf("%6d of %6d  %s", lines, budgets[subject], subject)
		if lines > budgets[subject] {
			t.Errorf("%q has %d lines, its budget in docs/design.md is %d: take something out, or state there why it grows", subject, lines, budgets[subject])
		}
	}
}
