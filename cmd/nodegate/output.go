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

// outputs has the flags of a verb that writes in several formats.
type outputs struct {
	format  string
	output  string
	named   string // the format that --output names
	colour  string // auto, always or never
	quiet   bool
	private bool // only the owner may read the output
	verbose bool
}

// formatFlags adds --format and --output. As with kubectl, -o json selects the format.
// Any other value is a file; without --format its extension selects the format.
func (o *outputs) formatFlags(c *cobra.Command, formats ...string) {
	c.Flags().StringVarP(&o.format, "format", "f", "text", joinOr(formats))
	c.Flags().VarP(outputValue{o, formats, c.Flags()}, "output", "o",
		"write to `FILE`; the format follows its extension. -o json prints JSON to standard output")
	c.Flags().StringVar(&o.colour, "color", "auto", "auto (colours on a terminal), always or never")
	completeWith(c, "format", formats...)
	completeWith(c, "color", "auto", "always", "never")
}

func (o *outputs) quietFlag(c *cobra.Command) {
	c.Flags().BoolVarP(&o.quiet, "quiet", "q", false, "print nothing; the exit status is the answer, and --output still writes")
}

// checkFormat rejects contradictions between --format, --output and --color, and sets the colours.
func checkFormat(c *cobra.Command) error {
	output := c.Flags().Lookup("output")
	if output == nil {
		return nil
	}
	v, is := output.Value.(outputValue)
	if !is {
		return nil
	}
	if strings.HasSuffix(v.format, ".hcl") {
		return fmt.Errorf("-f is --format; name the policy with --policy %s", plain.Quote(v.format))
	}
	switch extension := strings.TrimPrefix(filepath.Ext(v.output), "."); {
	case v.named != "" && v.named != v.format:
		return fmt.Errorf("-o %s and --format %s contradict each other; leave out one", v.named, v.format)
	case !slices.Contains(v.formats, v.format):
		return fmt.Errorf("unknown format %q; known formats: %s", v.format, strings.Join(v.formats, ", "))
	case slices.Contains(foreignExtensions(), extension) && !v.given.Changed("format") && !slices.Contains(v.formats, extension):
		return fmt.Errorf("%s cannot write a .%s file; known formats: %s; to write one of these to that file, add --format",
			c.CommandPath(), extension, strings.Join(v.formats, ", "))
	}
	switch v.colour {
	case "", "auto":
	case "always", "never":
		c.Root().SetOut(plain.NewWriter(os.Stdout, v.colour == "always"))
	default:
		return fmt.Errorf("unknown value %q for --color; known values: auto, always, never", v.colour)
	}
	return nil
}

// foreignExtensions returns the extensions of files that are never text.
func foreignExtensions() []string {
	return []string{"html", "htm", "svg", "json", "yaml", "yml", "xml", "csv", "md", "pdf", "sarif"}
}

// joinOr returns "text, junit or json".
func joinOr(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// isFormat reports whether a name is that of a format, rather than of a file.
func isFormat(name string) bool {
	return slices.Contains(append(foreignExtensions(), "wide", "text"), name)
}

// outputValue is the value of --output: a file, or the name of a format.
type outputValue struct {
	*outputs
	formats []string
	given   *pflag.FlagSet
}

func (v outputValue) String() string {
	if v.outputs == nil {
		return ""
	}
	return v.output
}

// Type implements pflag.Value. "string" makes the help print FILE, the name in the usage.
func (v outputValue) Type() string { return "string" }

func (v outputValue) Set(s string) error {
	switch {
	case s == "":
		return errors.New("empty value; is a variable in your script unset? give a FILE, or leave out --output")
	case s == "-": // standard output
		v.output = ""
	case slices.Contains(v.formats, s):
		if v.given.Changed("format") && v.named == "" && v.format != s {
			return fmt.Errorf("-o %s and --format %s contradict each other; leave out one", s, v.format)
		}
		v.named = s
		return v.given.Set("format", s)
	case strings.HasPrefix(s, "ut=") || strings.HasPrefix(s, "utput="): // -out=FILE is -o ut=FILE
		_, name, _ := strings.Cut(s, "=")
		return fmt.Errorf("long flags have two dashes: --output %s", name)
	case isFormat(s):
		return fmt.Errorf("unknown format %q; known formats: %s (to write a file of that name, use ./%s)", s, strings.Join(v.formats, ", "), s)
	case v.output != "" && v.output != s:
		return fmt.Errorf("-o was given twice, %s and %s; one call writes one file", v.output, s)
	default:
		v.output = s
		if extension := strings.TrimPrefix(filepath.Ext(s), "."); slices.Contains(v.formats, extension) && !v.given.Changed("format") {
			v.format = extension
		}
	}
	return nil
}

// completeWith makes the shell complete the values of a flag.
func completeWith(c *cobra.Command, flag string, words ...string) {
	// This fails only if the flag does not exist.
	_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// paint colours the report if it goes to a terminal.
func (o *outputs) paint(stdout io.Writer) report.Paint {
	if o.output != "" {
		return report.Plain
	}
	return report.Painter(stdout)
}

// report runs the checks on h, writes the report and returns the exit code.
func (o *checkRun) report(c *cobra.Command, h *host.Host, run runner) error {
	write := report.Renderer(o.format, o.paint(c.OutOrStdout()), o.verbose)
	p, found, err := o.examine(c, h, run)
	if err != nil {
		return err
	}
	r := report.New(h, p, found)
	nothing := len(r.Results) == 0 && o.some
	if nothing || o.some && r.Verdict == verdict.Pass && slices.ContainsFunc(r.Results, o.isNamedAndSkipped) {
		r.Verdict = verdict.Unknown
	}
	r.Repeat(repeated(c))
	r.Left = repeated(c)(o.left)
	if o.acts && h.Live() && slices.ContainsFunc(r.Results, func(res report.Result) bool { return res.Fixed }) && !installed() {
		r.Next = repeated(c)("these settings last until the next boot; `nodegate install` keeps them, `nodegate revert` takes them back")
	}
	if o.some && h.Live() {
		r.Next = report.NewPlan(found).Next(repeated(c))
		if r.Next != "" && !h.Moves {
			r.Next = "on " + cmp.Or(r.Node.Name, "that node") + ": " + r.Next
		}
	}
	switch err := o.write(c.OutOrStdout(), func(w io.Writer) error { return write(w, r) }); {
	case err != nil && o.acts && o.output == "":
		fmt.Fprintf(c.ErrOrStderr(), "nodegate: the report is lost: %v\n", err)
	case err != nil:
		return err
	}
	if o.some {
		for _, res := range r.Results {
			if o.isNamedAndSkipped(res) {
				fmt.Fprintf(c.ErrOrStderr(), "nodegate: %s was named and does not apply here: %s\n", res.Name, res.Skipped)
			}
		}
	}
	return exitCode(r.Verdict)
}

// isNamedAndSkipped reports whether the call names the check, without wildcards, and it does not apply.
func (o *checkRun) isNamedAndSkipped(res report.Result) bool {
	return res.Verdict == verdict.Skipped && slices.Contains(o.names, res.Name)
}

func (o *outputs) write(stdout io.Writer, render func(io.Writer) error) error {
	switch {
	case o.output == "" && o.quiet:
		return nil
	case o.output == "" && o.format == "text":
		return report.Fold(stdout, render)
	case o.output == "":
		return render(stdout)
	}
	mode := fs.FileMode(0o644)
	if o.private {
		mode = 0o600
	}
	var text bytes.Buffer
	if err := render(&text); err != nil {
		return err
	}
	if err := file.Output(o.output, []byte(plain.Escape(text.String())), mode); err != nil {
		return fmt.Errorf("writing --output: %w", err)
	}
	return nil
}

// writeDocument writes a document as JSON if that is the format, or else its text.
func (o *outputs) writeDocument(stdout io.Writer, document any, text func(io.Writer) error) error {
	if o.format == "json" {
		return o.write(stdout, func(w io.Writer) error { return report.JSON(w, document) })
	}
	return o.write(stdout, text)
}

// exactWriter returns the writer for a document that must not change, for example a policy.
// It escapes the document only on a terminal.
func exactWriter(stdout io.Writer) io.Writer {
	if f := plain.File(stdout); f != nil && !host.IsTerminal(f) {
		return f
	}
	return stdout
}

func exitCode(v verdict.Verdict) error {
	switch v {
	case verdict.Pass:
		return nil
	case verdict.Unknown:
		return exit(exitUnknown)
	}
	return exit(exitFail)
}
