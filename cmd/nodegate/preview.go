package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"nodegate/cmd/nodegate/internal/fleet"
	"nodegate/cmd/nodegate/internal/preview"
	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/host/file"
	"nodegate/internal/verdict"
	"nodegate/policy"
)

func newPreview() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:   "preview FILE...",
		Short: "Show what a new policy would do to many nodes, from their snapshots or reports",
		Long: `Preview runs a policy on what is recorded of nodes, before it is rolled out: which of
them would pass at their next start, be changed by apply and how, or be held, and
by which requirement. It reads snapshots ("nodegate snapshot --policy new.hcl" records
all that the new policy asks for), and reports of an older policy, which do not
know what that one did not ask for.

Exit status: 0 no node is held, 1 some are, 2 wrong call, policy or file, 3 it cannot
be told of some.`,
		Example: `  nodegate preview --policy new.hcl snapshots/*.json
  nodegate preview --policy new.hcl reports/*.json -o preview.html`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			write, err := o.previewRenderer(c.OutOrStdout())
			if err != nil {
				return err
			}
			loaded, files, err := o.policyAlone(c)
			if err != nil {
				return err
			}
			if loaded.Gate.Enforce == policy.Warn || loaded.Gate.OnTimeout == policy.Release {
				fmt.Fprintln(
					c.ErrOrStderr(),
					"nodegate: the policy's gate holds no node for good (enforce, on_timeout): what is held here starts all the same",
				)
			}
			known, err := o.known(c.ErrOrStderr())
			if err != nil {
				return err
			}
			p := preview.Policy{Source: policy.Read(files, known)}
			nodes, errs := p.Nodes(c.Context(), len(args), func(i int) (preview.Document, error) {
				text, err := file.ReadInput(args[i], report.MaxFile)
				return preview.Document{Name: args[i], Text: text}, err
			})
			for _, err := range errs {
				fmt.Fprintf(c.ErrOrStderr(), "nodegate: %v\n", err)
			}
			if len(nodes) == 0 {
				return exit(exitUsage)
			}
			if err := o.write(c.OutOrStdout(), func(w io.Writer) error { return write(w, nodes) }); err != nil {
				return err
			}
			switch worst := preview.Worst(nodes); {
			case len(errs) > 0:
				return exit(exitUsage)
			case worst == preview.Held:
				return exit(exitFail)
			case worst == preview.Unknown:
				return exit(exitUnknown)
			}
			return nil
		},
	}
	c.Flags().StringArrayVarP(&o.policies, "policy", "p", nil, "the new policy, `FILE or directory`; may be given more than once")
	c.Flags().StringArrayVar(&o.vars, "var", nil, "set a variable of the policy, `NAME=VALUE`")
	c.Flags().StringArrayVar(&o.varFiles, "var-file", nil, "set variables from the NAME = VALUE lines of `FILE`")
	o.formatFlags(c, "it", "text", "json", "html")
	c.Flags().BoolVarP(&o.verbose, "verbose", "v", false, "name every node")
	o.root, o.noFacts, o.lint = "/", true, true
	return c
}

func (o *options) previewRenderer(stdout io.Writer) (func(io.Writer, []preview.Forecast) error, error) {
	switch o.format {
	case "text":
		paint := o.paint(stdout)
		return func(w io.Writer, nodes []preview.Forecast) error { return preview.Text(w, nodes, o.verbose, paint) }, nil
	case "json":
		return preview.JSON, nil
	case "html":
		return func(w io.Writer, nodes []preview.Forecast) error {
			var reports []report.Read
			for _, n := range nodes {
				reports = append(reports, n.Report)
			}
			f, errs := fleet.Merge(reports)
			return errors.Join(append(errs, fleet.Page(w, f, previewWords()))...)
		}, nil
	}
	return nil, fmt.Errorf("--format is text, json or html; %q is none of them", o.format)
}

// previewWords is how the page of a fleet says what a policy would do.
func previewWords() fleet.Words {
	return fleet.Words{Wrong: "would be held, or are unknown", Fine: "none would be held",
		Verdicts: map[verdict.Verdict]string{verdict.Fail: "held", verdict.Warn: "changed"}}
}
