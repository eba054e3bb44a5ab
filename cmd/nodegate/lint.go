package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"nodegate/internal/report"
	"nodegate/policy"
)

func newLint() *cobra.Command {
	o := options{root: "/", noFacts: true}
	var strict bool
	var manifest string
	c := &cobra.Command{
		Use:   "lint [FILE or directory]...",
		Short: "Say what is wrong with a policy, every mistake at once, or with a kops manifest",
		Long: `Lint reads policies and says what is wrong with them. With --kops it reads a kops
manifest instead (Cluster, InstanceGroups, or both) and names the traps that its
hooks, fileAssets and sysctlParameters fall into: exit status 1 where there are
some, 2 where the file is no such manifest.`,
		Example: `  nodegate lint my.hcl
  nodegate lint /etc/nodegate/policy.d
  kops get --name NAME -o yaml | nodegate lint --kops -`,
		RunE: func(c *cobra.Command, args []string) error {
			if c.Flags().Changed("kops") {
				if len(args) > 0 {
					return errors.New("--kops reads a manifest; name policies in a call of their own")
				}
				return lintKops(c, manifest)
			}
			o.policies = args
			h, err := o.machine()
			if err != nil {
				return err
			}
			defer h.Close()
			p, _, err := o.load(h, c.ErrOrStderr())
			if err != nil {
				return err
			}
			if warnings := advice(p); len(warnings) > 0 {
				for _, w := range warnings {
					fmt.Fprintln(c.ErrOrStderr(), w)
				}
				if strict {
					return exit(exitUsage)
				}
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "ok: %s\n", summary(p))
			return err
		},
	}
	c.Flags().StringVar(&manifest, "kops", "", "read the kops manifest `FILE` (- is standard input)")
	c.Flags().BoolVar(&strict, "strict", false, "warnings fail too")
	c.Flags().StringArrayVar(&o.vars, "var", nil, "set a variable of the policy, `NAME=VALUE`")
	c.Flags().StringArrayVar(&o.varFiles, "var-file", nil, "set variables from the NAME = VALUE lines of `FILE`")
	return c
}

// advice is what is allowed in a policy and yet most likely not meant.
func advice(p *policy.Policy) []string {
	var all []string
	add := func(a policy.Metadata, what string) {
		if !a.Builtin {
			all = append(all, fmt.Sprintf("%s:%d:%d: Warning: %s", a.Range.Filename, a.Range.Start.Line, a.Range.Start.Column, what))
		}
	}
	for _, s := range p.Sysctls {
		if s.Reason == "" && s.Severity == policy.Block {
			add(s.Metadata, s.Key.String()+" holds kubelet and says no reason; write one for whoever stands before the held node")
		}
	}
	for _, l := range p.Links {
		if l.Match == (policy.Match{Name: "*"}) {
			add(l.Metadata, "link "+l.Name+" matches every interface, Pods' veths among them")
		}
		if l.Severity == policy.Block && l.Reason == "" {
			add(l.Metadata, "link "+l.Name+" holds kubelet and says no reason; write one for whoever stands before the held node")
		}
	}
	if p.Gate.OnTimeout == policy.Release && !p.Gate.Repair {
		add(policy.Metadata{Range: p.Gate.Range}, "the gate neither repairs nor holds: it only delays kubelet")
	}
	return all
}

func summary(p *policy.Policy) string {
	return fmt.Sprintf("%s, %s, %s; %s waits %s, then %s", report.Count(len(p.Modules), "module"), report.Count(len(p.Sysctls), "sysctl"),
		report.Count(len(p.Links), "link"), p.Gate.Unit, p.Gate.Budget, p.Gate.OnTimeout)
}
