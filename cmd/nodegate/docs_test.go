package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"nodegate/checks/catalog"
)

// TestCommandReference: docs/commands.md has the texts of the commands' help.
func TestCommandReference(t *testing.T) {
	const file = "../../docs/commands.md"
	var b bytes.Buffer
	b.WriteString("# Commands\n\nWhat `nodegate COMMAND --help` prints. Written by `UPDATE=1 go test ./cmd/nodegate`.\n")
	var write func(*cobra.Command)
	write = func(c *cobra.Command) {
		if c.Hidden || c.Name() == "help" || c.Name() == "completion" {
			return
		}
		c.InitDefaultHelpFlag()
		fmt.Fprintf(&b, "\n## %s\n\n```text\n", c.CommandPath())
		c.SetOut(&b)
		if err := c.Help(); err != nil {
			t.Fatal(err)
		}
		b.WriteString("```\n")
		for _, sub := range c.Commands() {
			write(sub)
		}
	}
	root := newRoot()
	write(root)
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.Split(b.String(), "\n"), strings.Split(string(have), "\n")); d != "" {
		t.Errorf("docs/commands.md is old; run UPDATE=1 go test ./cmd/nodegate\n%s", d)
	}
	for _, c := range root.Commands() {
		if c.Example == "" && !c.Hidden && c.Name() != "version" && c.Name() != "help" && c.Name() != "completion" {
			t.Errorf("the help of %s has no example", c.Name())
		}
	}
}

// TestVerbs: the word that a call begins with makes the command of that name, and only that.
func TestVerbs(t *testing.T) {
	for _, v := range verbs() {
		root := newRoot(v.name, "--help")
		if all := root.Commands(); len(all) != 1 || all[0].Name() != v.name {
			t.Errorf("%s: %d commands, the first %s", v.name, len(all), all[0].Name())
		}
	}
	for _, args := range [][]string{nil, {"--help"}, {"help", "check"}, {"chek"}, {"completion", "bash"}, {"__complete", "ch"}} {
		if all := newRoot(args...).Commands(); len(all) != len(verbs()) {
			t.Errorf("%q: %d commands", args, len(all))
		}
	}
}

// TestReadme: the report in README is what check prints of the recorded node, except for the time it took, and that the next call is for
// that node.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, shown, _ := strings.Cut(string(text), "$ nodegate check\n")
	shown, _, _ = strings.Cut(shown, "```")
	out, err := exec.CommandContext(t.Context(), "nodegate", "check", "--snapshot", "testdata/readme-node.json").Output()
	var failed *exec.ExitError
	if !errors.As(err, &failed) || failed.ExitCode() != exitFail {
		t.Fatalf("check: %v", err)
	}
	took := regexp.MustCompile(`, [0-9.]+(µs|ms|s)\)\n$`)
	there := strings.Replace(string(out), "\nnext    on node17: ", "\nnext    ", 1)
	if d := cmp.Diff(took.ReplaceAllString(shown, ""), took.ReplaceAllString(there, "")); d != "" {
		t.Error(d)
	}
}

// TestCallsInDocs: every call of nodegate in the documents, in a block or in a sentence, is one that the program takes: verb, flags
// and number of arguments. What the blocks of the guides do is run by TestGuides.
func TestCallsInDocs(t *testing.T) {
	var files []string
	for _, pattern := range []string{"../../*.md", "../../docs/*.md", "../../docs/guides/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	calls := 0
	block, sentence := regexp.MustCompile("(?ms)^```sh.*?^```"), regexp.MustCompile("`nodegate [^`]*`")
	call := regexp.MustCompile(`(?m)(?:^|[` + "`" + `|;&(] *|\bdo |sudo )nodegate( [^` + "`" + `|;&>#\n)]*)`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		joined := strings.ReplaceAll(string(text), "\\\n", " ")
		found := append(block.FindAllString(joined, -1), sentence.FindAllString(block.ReplaceAllString(joined, ""), -1)...)
		for _, m := range call.FindAllStringSubmatch(strings.Join(found, "\n"), -1) {
			args, _, _ := strings.Cut(m[1], "  ") // what follows is a remark
			words := strings.Fields(strings.NewReplacer("'", "", `"`, "", "<", " ", "]", "", "[", "").Replace(args))
			if len(words) == 0 || words[0] == strings.ToUpper(words[0]) { // COMMAND
				continue
			}
			c, rest, err := newRoot().Find(words)
			if err == nil {
				err = c.ParseFlags(rest)
			}
			if err == nil && len(words) > 1 {
				err = c.ValidateArgs(c.Flags().Args())
			}
			if err != nil && !strings.Contains(err.Error(), "help requested") {
				t.Errorf("%s: nodegate%s: %v", file, m[1], err)
			}
			calls++
		}
	}
	if calls < 100 {
		t.Errorf("found %d calls", calls)
	}
}

// TestTroubleshooting: what a row says that a command finds is a check that exists.
func TestTroubleshooting(t *testing.T) {
	text, err := os.ReadFile("../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	all, err := catalog.Explain()
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, e := range all {
		known[e.Name] = true
	}
	rows := 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, " | ")
		if len(cells) != 4 {
			continue
		}
		rows++
		for _, name := range regexp.MustCompile("`([a-z-]+\\.[a-z_.-]+)`").FindAllStringSubmatch(cells[2], -1) {
			if !known[name[1]] && name[1] != "10-nodegate.conf" {
				t.Errorf("there is no check %s", name[1])
			}
		}
	}
	if rows < 20 {
		t.Errorf("%d rows", rows)
	}
}

// TestChanges: docs/changes.md has every file that install writes.
func TestChanges(t *testing.T) {
	text, err := os.ReadFile("../../docs/changes.md")
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	if err := os.MkdirAll(root+"/etc/nodegate/policy.d", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(root+"/etc/nodegate/policy.d", 0o777); err != nil { // what --allow-writable is for
		t.Fatal(err)
	}
	var found [][]string
	for _, publish := range []string{"", "by = \"timer\""} {
		policy := "use \"kubernetes\" {}\npublish { " + publish + " }\naudit {}\ngate { unit_absent = \"allow\" }\n"
		if err := os.WriteFile(root+"/node.hcl", []byte(policy), 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), "nodegate", "install", "--root", root, "--policy", root+"/node.hcl", "--dry-run",
			"--assess-boot", "--allow-writable").CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		found = append(found, regexp.MustCompile("(?m)^ +create +"+regexp.QuoteMeta(root)+"(/.*)$").FindAllStringSubmatch(string(out), -1)...)
	}
	if len(found) < 30 {
		t.Errorf("%d files: %q", len(found), found)
	}
	for _, m := range found {
		name := m[1]
		if dir := filepath.Dir(name); dir == "/etc/nodegate/policy.d" || strings.HasSuffix(dir, ".target.wants") {
			name = filepath.Base(dir)
		}
		if !strings.Contains(string(text), filepath.Base(name)) {
			t.Errorf("docs/changes.md does not have %s", m[1])
		}
	}
}
