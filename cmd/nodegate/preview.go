package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"nodegate/cmd/nodegate/internal/preview"
	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/host/file"
	"nodegate/policy"
)

func newPreview() *cobra.Command {
	var o struct {
		policyInput
		outputs
	}
	c := &cobra.Command{
		Use:   "preview FILE...",
		Short: "Preview the effect of a new policy on many nodes",
		Long: `Preview evaluates a policy on recorded nodes before you roll it out. It shows
which nodes would pass at their next start, which ones apply would change and
how, and which ones would be held, and by which requirement.

"nodegate snapshot --whole" records all settings of a node, for any policy. If
the new policy has new checks, record with "--policy new.hcl" too.

Exit status: 0 no node would be held, 1 some nodes would be held,
2 usage, policy or file error, 3 some nodes are unknown.`,
		Example: `  nodegate preview --policy new.hcl snapshots/*.json
  nodegate preview --policy new.hcl snapshots/*.json -o preview.json`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if i := slices.IndexFunc(args, policy.IsPolicyFile); i >= 0 {
				return fmt.Errorf("%s is a policy, not a snapshot; name it with --policy %[1]s", args[i])
			}
			loaded, files, err := o.policyAlone(c)
			if err != nil {
				return err
			}
			if loaded.Gate.Enforce == policy.Warn || loaded.Gate.OnTimeout == policy.Release {
				fmt.Fprintln(c.ErrOrStderr(),
					"nodegate: the policy's gate never holds a node for good (enforce, on_timeout): nodes shown as held start anyway")
			}
			known, err := o.policyOptions(c.ErrOrStderr())
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
			if err := o.writeDocument(c.OutOrStdout(), preview.NewSummary(nodes), func(w io.Writer) error {
				return preview.Text(w, nodes, o.verbose, o.paint(c.OutOrStdout()))
			}); err != nil {
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
	c.Flags().StringArrayVarP(&o.policies, "policy", "p", nil, "read the new policy from `FILE|DIR`; may be repeated")
	o.varFlags(c)
	o.formatFlags(c, "text", "json")
	c.Flags().BoolVarP(&o.verbose, "verbose", "v", false, "list every node by name")
	o.root, o.noFacts, o.lint = "/", true, true
	return c
}
