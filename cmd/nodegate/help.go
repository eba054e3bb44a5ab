package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"nodegate/checks/catalog"
)

// newHelp returns cobra's help command, except that an unknown verb is a usage error.
func newHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [command]",
		Short: "Help about any command",
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return available(root), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			c, rest, err := root.Find(args)
			if err != nil {
				return unknownVerb(root, args)
			}
			if len(rest) > 0 {
				return unknownVerb(c, rest)
			}
			c.InitDefaultHelpFlag()
			return c.Help()
		},
	}
}

// helpWidth is the width of the help texts.
const helpWidth = 80

// writeUsage writes cobra's usage text, with the flags wrapped at helpWidth.
func writeUsage(c *cobra.Command) error {
	var b strings.Builder
	b.WriteString("Usage:")
	if c.Runnable() {
		b.WriteString("\n  " + c.UseLine())
	}
	if c.HasAvailableSubCommands() {
		b.WriteString("\n  " + c.CommandPath() + " [command]")
	}
	if c.HasExample() {
		b.WriteString("\n\nExamples:\n" + c.Example)
	}
	if len(c.Groups()) > 0 {
		for _, g := range c.Groups() {
			writeCommands(&b, g.Title, c, g.ID)
		}
	} else if c.HasAvailableSubCommands() {
		writeCommands(&b, "Available Commands:", c, "")
	}
	flags := strings.TrimRight(c.LocalFlags().FlagUsagesWrapped(helpWidth), "\n")
	b.WriteString("\n\nFlags:\n" + flagTypes().Replace(flags))
	if c.HasAvailableSubCommands() {
		b.WriteString("\n\nUse \"" + c.CommandPath() + " [command] --help\" for more information about a command.")
	}
	_, err := fmt.Fprintln(c.OutOrStderr(), b.String())
	return err
}

// writeCommands writes the commands of a group, core verbs in the order of coreVerbs and others by name.
func writeCommands(b *strings.Builder, title string, c *cobra.Command, group string) {
	list := slices.Clone(c.Commands())
	slices.SortStableFunc(list, func(x, y *cobra.Command) int {
		return cmp.Compare(slices.Index(coreVerbs(), x.Name()), slices.Index(coreVerbs(), y.Name()))
	})
	b.WriteString("\n\n" + title)
	for _, sub := range list {
		if sub.GroupID == group && (sub.IsAvailableCommand() || sub.Name() == "help") {
			fmt.Fprintf(b, "\n  %-*s %s", sub.NamePadding(), sub.Name(), sub.Short)
		}
	}
}

// flagTypes replaces Go's names of types by words of the same width.
func flagTypes() *strings.Replacer {
	return strings.NewReplacer(" string ", " WORD   ", " duration ", " DURATION ", " int ", " N   ")
}

// unknownVerb returns an error that suggests the nearest verbs, or nil without args.
func unknownVerb(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	nearest := ""
	c.SuggestionsMinimumDistance = 2
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		nearest = ` Did you mean "` + strings.Join(near, `" or "`) + `"?`
	}
	return fmt.Errorf("unknown command %q for %q.%s List the commands with `%s`", args[0], c.CommandPath(), nearest,
		strings.Replace(c.CommandPath(), "nodegate", "nodegate help", 1))
}

// available returns the verbs that help lists.
func available(root *cobra.Command) []string {
	var names []string
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return names
}

// needRoot returns an error for a call that only root can make.
func needRoot(what, instead string) error {
	if os.Geteuid() == 0 {
		return nil
	}
	return fmt.Errorf("%s changes this machine; run it as root%s", what, instead)
}

// needsRoot returns the remedy for an error of a call without the privilege that it needs, or "".
func needsRoot(err error) string {
	if os.Geteuid() != 0 && errors.Is(err, fs.ErrPermission) {
		return "; run it as root"
	}
	return ""
}

func completeChecks(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	all, err := catalog.Explain()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for _, e := range all {
		names = append(names, e.Name+"\t"+e.Breaks)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
