package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cpuguy83/go-md2man/v2/md2man"
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
	commands, verbs := "# COMMANDS\n\n", map[string]string{}
	for _, c := range root.Commands() {
		if shown(c) {
			commands += item("**nodegate-"+c.Name()+"**(1)", c.Short)
			verbs["nodegate-"+c.Name()+".1"] = manTitle("nodegate-"+c.Name(), "1", c.Short) + manVerb(c) +
				"# EXIT STATUS\n\nAs **nodegate**(1), unless stated above.\n\n# SEE ALSO\n\n**nodegate**(1), **nodegate-policy**(5)\n"
		}
	}
	files := "# FILES\n\n" + item("*"+units.PolicyDir+"*", "the policy of this machine") +
		item("*"+units.BreakGlassFile+"*", "if it exists, the gate is open and says so") +
		item("*/run/nodegate/report.json*", "what the gate found last") +
		item("*"+report.ChangesFile+"*", "every change of the running kernel, old value and new") +
		item("*/var/lib/nodegate*", "what uninstall needs to put everything back")
	pages := verbs
	pages["nodegate.1"] = manTitle("nodegate", "1", root.Short) + "# SYNOPSIS\n\n**nodegate** *COMMAND* [*FLAG*]...\n\n# DESCRIPTION\n\n" +
		manText(root.Long) + commands + files + manExamples(root) + "# SEE ALSO\n\n**nodegate-policy**(5)\n"
	pages["nodegate-policy.5"] = manTitle("nodegate-policy", "5", "what a Kubernetes node must be, in HCL") +
		manDocument(string(require.ReadFile(t, "../../docs/policy.md"))) + "\n# SEE ALSO\n\n**nodegate**(1), **nodegate-lint**(1), **nodegate-policy**(1)\n"
	if os.Getenv("UPDATE") != "" {
		require.NoError(t, os.MkdirAll(manDir, 0o755))
	}
	for name, page := range pages {
		assert.Golden(t, filepath.Join(manDir, name), string(md2man.Render([]byte(page))))
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

// manTitle begins a page, in Markdown.
func manTitle(name, section, short string) string {
	return fmt.Sprintf("%% %q %q \"DATE\" \"nodegate VERSION\" \"nodegate\"\n\n# NAME\n\n%s - %s\n\n", strings.ToUpper(name), section, name,
		strings.ToLower(short[:1])+short[1:])
}

// manVerb describes a verb, and the verbs below it.
func manVerb(c *cobra.Command) string {
	out, below := "# SYNOPSIS\n\n", ""
	for _, s := range append([]*cobra.Command{c}, c.Commands()...) {
		if s.Runnable() && shown(s) {
			_, args, _ := strings.Cut(s.Use, " ")
			out += "**" + s.CommandPath() + "** [*OPTION*]... " + manEscape(args) + "\n\n"
		}
		if s != c && shown(s) {
			below += "# " + strings.ToUpper(s.CommandPath()) + "\n\n" + manDescription(s)
		}
	}
	return out + "# DESCRIPTION\n\n" + manDescription(c) + below
}

func manDescription(c *cobra.Command) string {
	out := manText(c.Short + ".")
	if c.Long != "" {
		out = manText(c.Long)
	}
	if c.InitDefaultHelpFlag(); c.Runnable() {
		out += "### Options\n\n"
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Hidden {
				return
			}
			value, what := pflag.UnquoteUsage(f)
			tag := "**--" + f.Name + "** *" + value + "*"
			if f.Shorthand != "" {
				tag = "**-" + f.Shorthand + "**, " + tag
			}
			if !strings.Contains(" false [] 0", " "+f.DefValue) {
				what += " (default " + f.DefValue + ")"
			}
			out += item(strings.TrimSuffix(tag, " **"), what)
		})
	}
	return out + manExamples(c)
}

func manExamples(c *cobra.Command) string {
	if c.Example == "" {
		return ""
	}
	heading := "# EXAMPLES"
	if c.HasParent() && c.Parent().HasParent() {
		heading = "### Examples"
	}
	return heading + "\n\n```\n" + c.Example + "\n```\n\n"
}

func item(tag, what string) string { return tag + "\n: " + manEscape(what) + "\n\n" }

// manText escapes a help text: paragraphs, and indented lines that stay unchanged.
func manText(s string) string {
	var out strings.Builder
	code := false
	for line := range strings.Lines(strings.Trim(s, "\n") + "\n") {
		if indented := strings.HasPrefix(line, "  "); indented != code && strings.TrimSpace(line) != "" {
			out.WriteString(map[bool]string{true: "\n```\n", false: "```\n\n"}[indented])
			code = indented
		}
		if !code {
			line = manEscape(line)
		}
		out.WriteString(line)
	}
	if code {
		out.WriteString("```\n")
	}
	return out.String() + "\n"
}

func manEscape(s string) string {
	return regexp.MustCompile("[*_\\[\\]<`|\\\\]").ReplaceAllString(s, `\$0`)
}

// manDocument turns a document into a page: links are their text, and the rows of tables items.
func manDocument(s string) string {
	_, s, _ = strings.Cut(s, "\n")
	s = regexp.MustCompile(`\[([^]]+)\]\([^)]+\)`).ReplaceAllString(s, "$1")
	s = regexp.MustCompile(`(?m)^\|.*\|\n\|[-|]+\|\n`).ReplaceAllString(s, "")
	s = regexp.MustCompile(`(?m)^\| (.*?) \| (.*?) \| (.*) \|$`).ReplaceAllString(s, "$1\n: default $2: $3\n")
	s = regexp.MustCompile(`(?m)^\| (.*?) \| (.*) \|$`).ReplaceAllString(s, "$1\n: $2\n")
	return "# DESCRIPTION\n" + regexp.MustCompile(`(?m)^## .*`).ReplaceAllStringFunc(s, func(heading string) string { return strings.ToUpper(heading[1:]) })
}
