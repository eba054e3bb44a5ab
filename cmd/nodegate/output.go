package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/host"
	"nodegate/internal/host/file"
	"nodegate/internal/plain"
	"nodegate/internal/verdict"
)

// formatFlags adds --format and --output. As with kubectl, -o json means the format;
// any other word is a file, whose extension is the format if none is given.
func (o *options) formatFlags(c *cobra.Command, what string, formats ...string) {
	c.Flags().StringVarP(&o.format, "format", "f", "text", list(formats))
	c.Flags().VarP(outputValue{o, formats, c.Flags()}, "output", "o",
		"write "+what+" to `FILE` instead of standard output, as its extension says; the name of a format is that")
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
	given   *pflag.FlagSet
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
		return v.given.Set("format", s)
	case slices.Contains([]string{"yaml", "wide", "json", "html", "text"}, s):
		return fmt.Errorf("%s is no format of this verb; there is %s (a file of that name is ./%s)", s, list(v.formats), s)
	default:
		v.output = s
		if extension := strings.TrimPrefix(filepath.Ext(s), "."); slices.Contains(v.formats, extension) && !v.given.Changed("format") {
			v.format = extension
		}
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

// paint colours the report if it goes to a terminal.
func (o *options) paint(stdout io.Writer) report.Paint {
	if o.output != "" {
		return report.Plain
	}
	return report.Painter(stdout)
}

// report runs the checks on h, writes the report and returns the exit code.
func (o *options) report(c *cobra.Command, h *host.Host, run runner) error {
	write, err := report.Renderer(o.format, o.paint(c.OutOrStdout()), o.verbose)
	if err != nil {
		return err
	}
	p, found, err := o.examine(c, h, run)
	if err != nil && o.format == "npd" { // its only message is a line on standard output
		why := err.Error()
		if errors.As(err, new(exit)) {
			why = "the policy is wrong; run: nodegate lint"
		}
		err = errors.Join(err, o.write(c.OutOrStdout(), func(w io.Writer) error { return report.NotChecked(w, why) }))
	}
	if err != nil {
		return err
	}
	r := report.New(h, p, found)
	nothing := len(r.Results) == 0 && o.some
	if nothing {
		r.Verdict = verdict.Unknown
	}
	r.Repeat(again(c.Flags()))
	if o.some && h.Live() {
		r.Next = report.NewPlan(found).Next(again(c.Flags()))
		if r.Next != "" && !h.Moves {
			r.Next = "on " + cmp.Or(r.Node.Name, "that node") + ": " + r.Next
		}
	}
	if err := o.write(c.OutOrStdout(), func(w io.Writer) error { return write(w, r) }); err != nil {
		return err
	}
	if nothing {
		fmt.Fprintf(c.ErrOrStderr(), "nodegate: nothing was checked: the policy asks for nothing at stage %s\n", r.Stage)
	}
	if o.format == "npd" && r.Verdict == verdict.Unknown {
		return exit(npdUnknown)
	}
	return code(r.Verdict)
}

// npdUnknown is the exit status of node-problem-detector's custom plugins for
// unknown.
const npdUnknown = 2

func (o *options) write(stdout io.Writer, render func(io.Writer) error) error {
	switch {
	case o.output == "" && o.format == "text":
		return report.Fold(stdout, render)
	case o.output == "":
		return render(stdout)
	}
	mode := fs.FileMode(0o644)
	if o.private {
		mode = 0o600
	}
	info, err := os.Lstat(o.output)
	if err == nil && !info.Mode().IsRegular() { // a terminal, a pipe, a link
		f, err := os.OpenFile(o.output, os.O_WRONLY|os.O_TRUNC, 0)
		if err != nil {
			return fmt.Errorf("writing the report: %w", err)
		}
		return errors.Join(render(plain.NewWriter(f, false)), f.Close())
	}
	if err == nil && !o.private {
		mode = info.Mode().Perm()
	}
	var text bytes.Buffer
	if err := render(&text); err != nil {
		return err
	}
	// Whoever reads it meanwhile, as node_exporter does, finds the whole of the old one or of the new one.
	if err := file.Replace(o.output, []byte(plain.Escape(text.String())), mode); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}

// exact returns the writer of a document that must not change, a policy for example:
// only on a terminal is it escaped.
func exact(stdout io.Writer) io.Writer {
	if f := plain.File(stdout); f != nil && !host.IsTerminal(f) {
		return f
	}
	return stdout
}

func code(v verdict.Verdict) error {
	switch v {
	case verdict.Pass:
		return nil
	case verdict.Unknown:
		return exit(exitUnknown)
	}
	return exit(exitFail)
}
