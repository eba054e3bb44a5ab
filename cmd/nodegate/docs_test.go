package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
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

// TestReadme: the report in README is what check prints of the recorded node,
// except for the time it took.
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
	if d := cmp.Diff(took.ReplaceAllString(shown, ""), took.ReplaceAllString(string(out), "")); d != "" {
		t.Error(d)
	}
}
