package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"nodegate/cmd/nodegate/internal/report"
	"nodegate/images/export"
	"nodegate/internal/host/file"
	"nodegate/units"
)

func newExport() *cobra.Command {
	o := options{root: "/", noFacts: true}
	var binary, sum, image, at, apiVersion string
	var strict bool
	c := &cobra.Command{
		Use:   "export FORMAT",
		Short: "Write the policy in the form that carries it onto machines: kops, cloud-init, Talos, ...",
		Long: `Export writes one policy in the form that a target reads. A comment in the output
and a line on standard error name what the target cannot express; with --strict
that is an error (exit 2) and nothing is written.

Formats:
` + formatList() + `
The binary reaches the node with its image (--binary baked), from a URL, or from a
container image. A node that fetches it verifies it before every use; kubelet is
held until it is there and the gate passes.`,
		Example: `  nodegate export kops --policy my.hcl --binary https://example.com/nodegate --sha256 SUM
  nodegate export cloud-init --output user-data
  nodegate export daemonset --image registry.example.com/nodegate@sha256:DIGEST --output base/
  nodegate export talos --strict`,
		ValidArgsFunction: cobra.FixedCompletions(export.Names(), cobra.ShellCompDirectiveNoFileComp),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("name one format: %s", strings.Join(export.Names(), ", "))
			}
			format, err := export.Find(args[0])
			if err != nil {
				return err
			}
			delivery, err := export.ParseDelivery(binary, sum, image, at)
			if err != nil {
				return err
			}
			if format.Tree && o.output == "" {
				return fmt.Errorf("%s is a folder of files: say where with --output DIR", format.Name)
			}
			p, texts, err := o.policyAlone(c)
			if err != nil {
				return err
			}
			if format.Needs != export.Settings {
				if err := readableThere(nil, p, texts, c.ErrOrStderr()); err != nil {
					return err
				}
			}
			r, err := format.Write(export.Input{Policy: p, Texts: texts, Delivery: delivery, APIVersion: apiVersion})
			if err != nil {
				return err
			}
			for _, l := range r.Lacks {
				fmt.Fprintf(c.ErrOrStderr(), "nodegate: %s cannot express %s\n", format.Name, l)
			}
			if large := format.TooLarge(r); large != "" {
				fmt.Fprintln(c.ErrOrStderr(), "nodegate:", large)
			}
			if strict && len(r.Lacks) > 0 {
				return fmt.Errorf("%s in the policy that %s cannot express; nothing was written (--strict)",
					report.Count(len(r.Lacks), "thing"), format.Name)
			}
			if format.Tree {
				return writeTree(o.output, r)
			}
			if o.output == "" {
				_, err = exact(c.OutOrStdout()).Write(r.Text)
				return err
			}
			return writeOut(o.output, r.Text, 0o644)
		},
	}
	o.lint = true
	c.Flags().StringArrayVarP(&o.policies, "policy", "p", nil, "policy `FILE or directory`; may be given more than once")
	c.Flags().StringArrayVar(&o.vars, "var", nil, "set a variable of the policy, `NAME=VALUE`")
	c.Flags().StringArrayVar(&o.varFiles, "var-file", nil, "set variables from the NAME = VALUE lines of `FILE`")
	c.Flags().StringVarP(&o.output, "output", "o", "", "write to `FILE or directory` instead of standard output")
	c.Flags().BoolVar(&strict, "strict", false, "fail if the target cannot express all of the policy")
	c.Flags().StringVar(&binary, "binary", "", "where the node gets nodegate: baked (the default), or a `URL`")
	c.Flags().StringVar(&sum, "sha256", "", "the `SUM` of the binary at the URL; no other binary is run")
	c.Flags().StringVar(&image, "image", "", "the container image with /nodegate in it, `REF@sha256:DIGEST`")
	c.Flags().StringVar(&at, "path", "", "the `FILE` that nodegate is on the node (default "+units.Binary+")")
	c.Flags().StringVar(&apiVersion, "api-version", "", "kubeadm only: Cluster API's `VERSION`, v1beta2 (the default) or v1beta1")
	return c
}

func formatList() string {
	var b strings.Builder
	for _, f := range export.Formats() {
		fmt.Fprintf(&b, "  %-13s %s\n", f.Name, f.Description)
	}
	return b.String()
}

// writeTree writes an export that is a folder, below dir.
func writeTree(dir string, r export.Result) error {
	for _, f := range r.Tree {
		name := filepath.Join(dir, filepath.FromSlash(f.Path))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return fmt.Errorf("writing the export: %w", err)
		}
		if err := writeOut(name, f.Content, f.Mode); err != nil {
			return err
		}
	}
	return nil
}

func writeOut(name string, content []byte, mode os.FileMode) error {
	if err := file.Replace(name, content, mode); err != nil {
		return fmt.Errorf("writing the export: %w", err)
	}
	return nil
}
