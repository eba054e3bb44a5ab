package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/assert"
	"nodegate/internal/require"
	"nodegate/units"
)

// manDir holds the manual pages. A release fills in their DATE and VERSION.
const manDir = "../../docs/man"

// TestManual: docs/man contains the help texts of the commands, and docs/policy.md.
func TestManual(t *testing.T) {
	root := newRoot()
	pages := map[string]string{"nodegate.1": rootPage(root), "nodegate-policy.5": policyPage(t)}
	for _, c := range root.Commands() {
		if shown(c) {
			pages["nodegate-"+c.Name()+".1"] = verbPage(c)
		}
	}
	if os.Getenv("UPDATE") != "" {
		require.NoError(t, os.MkdirAll(manDir, 0o755))
	}
	for name, page := range pages {
		file := filepath.Join(manDir, name)
		assert.Golden(t, file, page)
	}
	there, err := filepath.Glob(manDir + "/*")
	require.NoError(t, err)
	for _, file := range there {
		assert.True(t, pages[filepath.Base(file)] != "", "%s does not belong to a command; remove it", file)
	}
}

func shown(c *cobra.Command) bool {
	return !c.Hidden && c.Name() != "help" && c.Name() != "completion"
}

func rootPage(root *cobra.Command) string {
	var p page
	p.title("NODEGATE", "1")
	p.section("NAME")
	p.text("nodegate \\- " + roff(lowerFirst(root.Short)))
	p.section("SYNOPSIS")
	p.text(strong("nodegate") + " " + slanted("COMMAND") + " [" + slanted("FLAG") + "]...")
	p.section("DESCRIPTION")
	p.prose(root.Long)
	p.section("COMMANDS")
	for _, c := range root.Commands() {
		if shown(c) {
			p.item(strong("nodegate\\-"+c.Name())+"(1)", roff(c.Short))
		}
	}
	p.section("FILES")
	p.item(slanted(units.PolicyDir), "the policy of this machine")
	p.item(slanted(units.BreakGlassFile), "if it exists, the gate is open and says so")
	p.item(slanted("/run/nodegate/report.json"), "what the gate found last")
	p.item(slanted(report.ChangesFile), "every change of the running kernel, old value and new")
	p.item(slanted("/var/lib/nodegate"), "what uninstall needs to put everything back")
	p.examples(root)
	p.section("SEE ALSO")
	p.text(strong("nodegate\\-policy") + "(5)")
	return p.String()
}

func verbPage(c *cobra.Command) string {
	var p page
	name := "nodegate-" + c.Name()
	p.title(strings.ToUpper(name), "1")
	p.section("NAME")
	p.text(roff(name) + " \\- " + roff(lowerFirst(c.Short)))
	p.section("SYNOPSIS")
	var lines []string
	for _, s := range append([]*cobra.Command{c}, c.Commands()...) {
		if s.Runnable() && shown(s) {
			lines = append(lines, usage(s))
		}
	}
	p.text(strings.Join(lines, "\n.br\n"))
	p.section("DESCRIPTION")
	p.prose(description(c))
	p.options(c)
	for _, s := range c.Commands() {
		if shown(s) {
			p.section(strings.ToUpper(s.CommandPath()))
			p.prose(description(s))
			p.options(s)
			p.examples(s)
		}
	}
	p.examples(c)
	p.section("EXIT STATUS")
	p.text("As " + strong("nodegate") + "(1), unless stated above.")
	p.section("SEE ALSO")
	p.text(strong("nodegate") + "(1), " + strong("nodegate\\-policy") + "(5)")
	return p.String()
}

// usage returns the usage line of a verb without cobra's "[flags]".
func usage(c *cobra.Command) string {
	_, rest, _ := strings.Cut(c.Use, " ")
	line := strong(roff(c.CommandPath()))
	if c.HasAvailableLocalFlags() {
		line += " [" + slanted("OPTION") + "]..."
	}
	if rest != "" {
		line += " " + roff(rest)
	}
	return line
}

func description(c *cobra.Command) string {
	if c.Long != "" {
		return c.Long
	}
	return c.Short + "."
}

func (p *page) options(c *cobra.Command) {
	c.InitDefaultHelpFlag()
	if len(c.Commands()) == 0 || c.Runnable() {
		p.line(".SS Options")
		c.LocalFlags().VisitAll(p.flag)
	}
}

func (p *page) flag(f *pflag.Flag) {
	if f.Hidden {
		return
	}
	value, what := pflag.UnquoteUsage(f)
	tag := strong(roff("--" + f.Name))
	if f.Shorthand != "" {
		tag = strong(roff("-"+f.Shorthand)) + ", " + tag
	}
	if value != "" {
		tag += " " + slanted(roff(value))
	}
	switch f.DefValue {
	case "", "false", "[]", "0":
	default:
		what += fmt.Sprintf(" (default %s)", f.DefValue)
	}
	p.item(tag, roff(what))
}

func (p *page) examples(c *cobra.Command) {
	if c.Example == "" {
		return
	}
	if c.HasParent() && c.Parent().HasParent() {
		p.line(".SS Examples")
	} else {
		p.section("EXAMPLES")
	}
	p.code(c.Example)
}

func lowerFirst(s string) string { return strings.ToLower(s[:1]) + s[1:] }
