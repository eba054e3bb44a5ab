package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/spf13/cobra"

	"nodegate/policy"
	"nodegate/policy/lint"
	"nodegate/units"
)

// lintFormats returns the formats of lint for a policy.
func lintFormats() []string { return []string{"text", "json"} }

// lintPolicy judges a policy and writes its findings in the chosen format.
func (o *lintOptions) lintPolicy(c *cobra.Command) error {
	if policy.IsPolicyFile(filepath.Base(o.format)) {
		return fmt.Errorf("-f is --format; name the policy as an argument: nodegate lint %s", o.format)
	}
	if !slices.Contains(lintFormats(), o.format) {
		return fmt.Errorf("unknown format %q; known formats: %s", o.format, strings.Join(lintFormats(), ", "))
	}
	h, err := o.machine()
	if err != nil {
		return err
	}
	defer h.Close()
	files, err := o.policyFiles(h)
	if err != nil {
		return err
	}
	for _, f := range files {
		if bytes.HasPrefix(f.Text, []byte("apiVersion:")) {
			return fmt.Errorf("%s is YAML, not a policy (*.hcl); `nodegate lint --kops %[1]s` alone reads a kops manifest", f.Name)
		}
	}
	known, err := o.policyOptions(c.ErrOrStderr())
	if err != nil {
		return err
	}
	directories := o.policies
	if len(directories) == 0 {
		directories = []string{units.PolicyDir}
	}
	debug.SetGCPercent(50) // the tokens of the largest file take 25 MB
	p, diags := lint.Advise(files, known)
	diags = append(diags, unreadFiles(directories)...)
	failed := diags.HasErrors() || o.strict && len(diags) > 0
	if o.format != "text" {
		text, err := lintDocument(p, diags, failed)
		if err == nil {
			_, err = exactWriter(c.OutOrStdout()).Write(text)
		}
		if err == nil && failed {
			err = exit(exitUsage)
		}
		return err
	}
	if err := printDiagnostics(c.ErrOrStderr(), files, diags); err != nil {
		return err
	}
	if failed {
		fmt.Fprintln(c.ErrOrStderr(), "nodegate: the policy has warnings, which are errors with --strict")
		return exit(exitUsage)
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "ok: %s; read %s\n", summary(p), strings.Join(p.Files, ", "))
	return err
}

// unreadFiles returns a warning for each file of a policy directory that no verb reads because of its name.
func unreadFiles(paths []string) hcl.Diagnostics {
	var all hcl.Diagnostics
	for _, dir := range paths {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // not a directory
		}
		for _, e := range entries {
			upper := strings.ToUpper(e.Name())
			text := strings.HasPrefix(upper, "README") || strings.HasPrefix(upper, "LICENSE") || strings.HasSuffix(upper, ".MD")
			if policy.IsPolicyFile(e.Name()) || text || strings.HasPrefix(e.Name(), ".") {
				continue
			}
			name := filepath.Join(dir, e.Name())
			all = append(all, &hcl.Diagnostic{
				Severity: hcl.DiagWarning, Summary: "Not read", Subject: &hcl.Range{Filename: name, Start: hcl.InitialPos, End: hcl.InitialPos},
				Detail: "A policy file in a directory must be a file that ends in .hcl. Rename it, or move it elsewhere.",
			})
		}
	}
	return all
}

// lintReport is the document of lint --format json.
type lintReport struct {
	APIVersion string        `json:"apiVersion"` // nodegate/v1
	Kind       string        `json:"kind"`       // Lint
	Verdict    string        `json:"verdict"`    // pass or fail
	Files      []string      `json:"files"`      // the files that were read
	Findings   []lintFinding `json:"findings"`   // mistakes and warnings
}

// lintFinding is one mistake or warning.
type lintFinding struct {
	File      string `json:"file"`      // the path as given
	Line      int    `json:"line"`      // the first is 1
	Column    int    `json:"column"`    // in characters
	EndLine   int    `json:"endLine"`   // the last line of the range
	EndColumn int    `json:"endColumn"` // the column after the range
	Severity  string `json:"severity"`  // error or warning
	ID        string `json:"id"`        // of the kind of finding; lint { allow } takes a warning's
	Summary   string `json:"summary"`   // stable for one kind of finding
	Detail    string `json:"detail"`    // the fault, and the line to write
}

func newLintFinding(d *hcl.Diagnostic) lintFinding {
	f := lintFinding{Severity: "error", ID: policy.RuleID(d.Summary), Summary: strings.TrimSuffix(d.Summary, "."), Detail: d.Detail}
	if d.Severity == hcl.DiagWarning {
		f.Severity = "warning"
	}
	if f.Summary == "" {
		f.Summary = "Advice"
	}
	if d.Subject != nil {
		f.File, f.Line, f.Column = d.Subject.Filename, d.Subject.Start.Line, d.Subject.Start.Column
		f.EndLine, f.EndColumn = d.Subject.End.Line, d.Subject.End.Column
	}
	return f
}

// lintDocument returns the findings as JSON.
func lintDocument(p *policy.Policy, diags hcl.Diagnostics, failed bool) ([]byte, error) {
	findings := make([]lintFinding, 0, len(diags))
	for _, d := range diags {
		findings = append(findings, newLintFinding(d))
	}
	verdict := "pass"
	if failed {
		verdict = "fail"
	}
	text, err := json.MarshalIndent(lintReport{"nodegate/v1", "Lint", verdict, append([]string{}, p.Files...), findings}, "", "  ")
	return append(text, '\n'), err
}
