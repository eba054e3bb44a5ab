package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"nodegate/cmd/nodegate/internal/report"
	"nodegate/images/kops"
	"nodegate/policy"
)

// lintOptions holds the flags of lint.
type lintOptions struct {
	policyInput
	format   string
	strict   bool
	manifest string
}

func newLint() *cobra.Command {
	o := lintOptions{policyInput: policyInput{root: "/", noFacts: true}}
	c := &cobra.Command{
		Use:   "lint [FILE|DIR]...",
		Short: "Find the mistakes in a policy, or the traps in a kops manifest",
		Long: `Lint reads policies and prints all their mistakes. - is standard input. Without
arguments it reads what a pipe brings, or else the installed policy.

With --kops, or if the argument is a YAML file, it reads a kops manifest
instead (Cluster, InstanceGroups, or both) and reports traps in its hooks,
fileAssets and sysctlParameters: what kops accepts, and what then does not work.

With --format json the mistakes and warnings of a policy are written to standard
output in a form that other tools read.

A lint block in the policy acknowledges what is right: names that no recorded
kernel has (lint { allow_names = ["my_module"] }), and warnings, by the id in
brackets at the end of the warning and the name of the block
(lint { allow = ["harmful-value:kernel.panic"] }).

Exit status: 0 no mistake or trap, 1 the kops manifest has traps, 2 the policy
has mistakes, or the file is not a kops manifest.`,
		Example: `  nodegate lint my.hcl
  nodegate lint /etc/nodegate/policy.d
  nodegate lint cluster.yaml
  kops get --name NAME -o yaml | nodegate lint --kops -`,
		RunE: func(c *cobra.Command, args []string) error {
			if o.manifest == "" && len(args) == 1 && isManifest(args[0]) {
				return lintKops(c, args[0], o.format)
			}
			if c.Flags().Changed("kops") {
				if len(args) > 0 {
					return errors.New("--kops reads a manifest; lint policies in a separate call")
				}
				return lintKops(c, o.manifest, o.format)
			}
			o.lintInput(args)
			return o.lintPolicy(c)
		},
	}
	c.Flags().StringVarP(&o.format, "format", "f", "text", joinOr(lintFormats()))
	completeWith(c, "format", lintFormats()...)
	c.Flags().StringArrayVarP(&o.policies, "policy", "p", nil, "lint `FILE|DIR`, as an argument does")
	c.Flags().StringVar(&o.manifest, "kops", "", "read the kops manifest in `FILE` (- is standard input)")
	c.Flags().BoolVar(&o.strict, "strict", false, "treat warnings as errors")
	o.varFlags(c)
	return c
}

// summary counts the settings and the checks of a policy, and describes its gate.
func summary(p *policy.Policy) string {
	all := []string{report.Count(len(p.Modules), "module"), report.Count(len(p.Sysctls), "sysctl")}
	if len(p.Sysfs) > 0 {
		all = append(all, fmt.Sprintf("%d sysfs", len(p.Sysfs)))
	}
	all = append(all, report.Count(len(p.Links), "link"))
	all = append(all, report.Count(len(p.Problems)+len(p.Execs)+len(p.Probes), "check"))
	return fmt.Sprintf("%s; %s %s", strings.Join(all, ", "), p.Gate.Unit, p.Gate.Waits())
}

func lintKops(c *cobra.Command, name, format string) error {
	if format != "text" {
		return fmt.Errorf("--format %s is for policies; a kops manifest is reported as text only", format)
	}
	text, name, err := readManifest(c, name)
	if err != nil {
		return fmt.Errorf("reading the manifest: %w", err)
	}
	r, err := kops.Lint(text)
	if err != nil {
		for line := range strings.Lines(err.Error()) {
			fmt.Fprintf(c.ErrOrStderr(), "%s:%s\n", name, strings.TrimSuffix(line, "\n"))
		}
		return exit(exitUsage)
	}
	w := c.OutOrStdout()
	for _, f := range r.Findings {
		fmt.Fprintf(w, "%s:%d:%d: %s: %s\n    fix: %s\n", name, f.Line, f.Column, f.Trap, f.What, f.Do)
	}
	inspected := fmt.Sprintf("%s, %s, %s", report.Count(r.Hooks, "hook"), report.Count(r.Assets, "fileAsset"),
		report.Count(r.Sysctls, "sysctlParameter"))
	if traps := len(r.Findings); traps > 0 {
		fmt.Fprintf(w, "nodegate: %s in %s\n", report.Count(traps, "trap"), inspected)
		return exit(exitFail)
	}
	_, err = fmt.Fprintf(w, "ok: no known trap in %s\n", inspected)
	return err
}

// readManifest reads one byte more than a manifest may have, so that kops.Lint
// can reject a manifest that is too large.
func readManifest(c *cobra.Command, name string) (text []byte, shown string, err error) {
	in, shown, err := openNamed(name, c.InOrStdin())
	if err != nil {
		return nil, "", err
	}
	defer in.Close()
	text, err = io.ReadAll(io.LimitReader(in, kops.MaxSize+1))
	return text, shown, err
}
