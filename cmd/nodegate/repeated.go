package main

import (
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/plain"
)

// repeated returns what completes the nodegate commands in a text: each gets the flags of this call that choose the policy, the
// machine and the stage, as far as it has them.
func repeated(c *cobra.Command) report.Call {
	flags := slices.DeleteFunc([]string{"policy", "var", "var-file", "root", "snapshot", "stage"}, func(flag string) bool {
		given := c.Flags().Lookup(flag)
		return given == nil || !given.Changed
	})
	if len(flags) == 0 {
		return func(text string) string { return text }
	}
	commands := regexp.MustCompile("`nodegate ([a-z]+)[^`]*`")
	return func(text string) string {
		return commands.ReplaceAllStringFunc(text, func(command string) string {
			name := commands.FindStringSubmatch(command)[1]
			i := slices.IndexFunc(verbs(), func(v verb) bool { return v.name == name })
			if i < 0 {
				return command
			}
			other := verbs()[i].new()
			if sub, _, err := other.Find(strings.Fields(strings.Trim(command, "`"))[2:]); err == nil {
				other = sub
			}
			for _, flag := range flags {
				if other.Flags().Lookup(flag) != nil && !strings.Contains(command, "--"+flag+" ") {
					command = strings.TrimSuffix(command, "`") + written(c.Flags().Lookup(flag)) + "`"
				}
			}
			return command
		})
	}
}

// written returns a flag as it was given: " --policy my.hcl".
func written(f *pflag.Flag) (text string) {
	values := []string{f.Value.String()}
	if list, ok := f.Value.(pflag.SliceValue); ok {
		values = list.GetSlice()
	}
	for _, v := range values {
		text += " --" + f.Name + " " + plain.Quote(v)
	}
	return text
}
