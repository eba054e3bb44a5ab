package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"nodegate/cmd/nodegate/internal/report"
	"nodegate/images/export"
	"nodegate/internal/host/file"
	"nodegate/units"
)

func newExport() *cobra.Command {
	o := policyInput{root: "/", noFacts: true, lint: true, ships: true}
	var output string
	var binary, sum, image, at, apiVersion string
	var strict, multipart bool
	c := &cobra.Command{
		Use:   "export FORMAT",
		Short: "Convert the policy for kops, cloud-init and other targets",
		Long: `Export converts one policy to the format of a target. If the target cannot
express part of the policy, a comment in the output and a line on standard
error name that part. With --strict this is an error (exit status 2), and
export writes nothing.

Formats:
` + formatList() + `
The node gets the binary with its image (--binary baked), from a URL, or from a
container image. A node that downloads the binary verifies it before every use.
Kubelet is held until the binary is there and the gate passes.`,
		Example: `  nodegate export kops --binary https://example.com/nodegate --sha256 SUM
  nodegate export cloud-init --policy my.hcl --output user-data
  nodegate export daemonset --image ghcr.io/me/gate@sha256:DIGEST --output base/
  nodegate export cloud-init --mime > user-data.mime
  nodegate export files --output tree/`,
		ValidArgsFunction: cobra.FixedCompletions(export.Names(), cobra.ShellCompDirectiveNoFileComp),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("name one format, and the policy with --policy FILE; known formats: %s", strings.Join(export.Names(), ", "))
			}
			format, err := export.Find(args[0])
			if err != nil && slices.Contains([]string{"user-data", "userdata", "terraform", "eks", "karpenter", "aws"}, args[0]) {
				return fmt.Errorf("%w; user data of a machine is `nodegate export cloud-init`, with --mime for EKS and Karpenter", err)
			}
			if err != nil {
				return err
			}
			delivery, err := export.ParseDelivery(binary, sum, image, at)
			if err != nil {
				return err
			}
			if format.Tree && output == "" {
				return fmt.Errorf("format %s writes several files; name their directory with --output DIR", format.Name)
			}
			p, texts, err := o.policyAlone(c)
			if err != nil {
				return err
			}
			r, err := format.Write(export.Input{Policy: p, Texts: texts, Delivery: delivery, APIVersion: apiVersion})
			if err != nil {
				return err
			}
			if multipart {
				if format.Name != "cloud-init" {
					return fmt.Errorf("--mime is for the format cloud-init, not for %s", format.Name)
				}
				if r.Text, err = export.MIME(r.Text); err != nil {
					return err
				}
			}
			for _, l := range r.Lacks {
				fmt.Fprintf(c.ErrOrStderr(), "nodegate: %s cannot express %s\n", format.Name, l)
			}
			if needs := format.NeedsBinary(delivery); needs != "" {
				fmt.Fprintln(c.ErrOrStderr(), "nodegate:", needs)
			}
			if large := format.TooLarge(r); large != "" {
				fmt.Fprintln(c.ErrOrStderr(), "nodegate:", large)
			}
			if strict && len(r.Lacks) > 0 {
				return fmt.Errorf("%s cannot express %s of the policy; nothing was written (--strict)",
					format.Name, report.Count(len(r.Lacks), "part"))
			}
			if format.Tree {
				return writeTree(output, r)
			}
			if output == "" {
				_, err = exactWriter(c.OutOrStdout()).Write(r.Text)
				return err
			}
			if err := file.Output(output, r.Text, 0o644); err != nil {
				return fmt.Errorf("writing the export: %w", err)
			}
			return nil
		},
	}
	c.Flags().StringArrayVarP(&o.policies, "policy", "p", nil, "read the policy from `FILE|DIR`; may be repeated")
	o.varFlags(c)
	c.Flags().StringVarP(&output, "output", "o", "", "write to `FILE|DIR` instead of standard output")
	c.Flags().BoolVar(&strict, "strict", false, "fail if the target cannot express all of the policy")
	c.Flags().StringVar(&binary, "binary", "", "where the node gets nodegate: baked (in its image, the default) or a `URL`")
	c.Flags().StringVar(&sum, "sha256", "", "the checksum `SUM` of the binary at the URL; the node runs no other binary")
	c.Flags().StringVar(&image, "image", "", "the container image that contains /nodegate: `REF@sha256:DIGEST`")
	c.Flags().StringVar(&at, "path", "", "the binary's path on the node, `FILE` (default "+units.Binary+")")
	c.Flags().BoolVar(&multipart, "mime", false, "cloud-init only: write MIME multipart user data, as nodeadm and Karpenter read it")
	c.Flags().StringVar(&apiVersion, "api-version", "", "kubeadm only: Cluster API's `VERSION`, v1beta2 (the default) or v1beta1")
	return c
}

func formatList() string {
	var b strings.Builder
	for _, f := range export.Formats() {
		line := fmt.Sprintf("  %-13s", f.Name)
		for word := range strings.FieldsSeq(f.Description) {
			if len(line)+1+len(word) > helpWidth {
				b.WriteString(line + "\n")
				line = strings.Repeat(" ", 15)
			}
			line += " " + word
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

// writeTree writes an export of several files below dir.
func writeTree(dir string, r export.Result) error {
	for _, f := range r.Tree {
		if err := file.OutputTree(filepath.Join(dir, filepath.FromSlash(f.Path)), f.Content, f.Mode); err != nil {
			return fmt.Errorf("writing the export: %w", err)
		}
	}
	return nil
}
