package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"nodegate/internal/plain"
	"nodegate/internal/report"
)

// formatFlags adds --format and --output. As with kubectl, -o json means the format;
// any other word is a file.
func (o *options) formatFlags(c *cobra.Command, what string, formats ...string) {
	c.Flags().StringVarP(&o.format, "format", "f", "text", list(formats))
	c.Flags().VarP(outputValue{o, formats}, "output", "o", "write "+what+" to `FILE` instead of standard output; the name of a format is that")
	completeWith(c, "format", formats...)
}

// list returns "text, json or html".
func list(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// outputValue is a file, or a format by its name.
type outputValue struct {
	*options
	formats []string
}

func (v outputValue) String() string {
	if v.options == nil {
		return ""
	}
	return v.output
}

// Type makes the help call it what its usage does.
func (v outputValue) Type() string { return "string" }

func (v outputValue) Set(s string) error {
	switch {
	case s == "":
		return errors.New("is a variable of the script not set? Name the FILE, or leave it out")
	case slices.Contains(v.formats, s):
		v.format = s
	case slices.Contains([]string{"yaml", "wide", "json", "html", "text"}, s):
		return fmt.Errorf("%s is no format of this verb; there is %s (a file of that name is ./%s)", s, list(v.formats), s)
	default:
		v.output = s
	}
	return nil
}

// completeWith makes the shell complete the words of a flag.
func completeWith(c *cobra.Command, flag string, words ...string) {
	// It fails only where the flag does not exist.
	_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// again returns the flags of a call that decide what is checked.
func again(given *pflag.FlagSet) report.Call {
	return report.Call{Policy: repeated(given, "policy", "var", "var-file"), Stage: repeated(given, "stage")}
}

func repeated(given *pflag.FlagSet, names ...string) string {
	var b strings.Builder
	given.Visit(func(f *pflag.Flag) {
		if !slices.Contains(names, f.Name) {
			return
		}
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, v := range values {
			b.WriteString(" --" + f.Name + " " + plain.Quote(v))
		}
	})
	return b.String()
}
