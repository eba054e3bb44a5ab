package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"nodegate/internal/report"
	"nodegate/policy"
)

// printDiagnostics prints one line and an excerpt for each mistake, in the
// order of the files, and answers exit 2 where one is an error.
func printDiagnostics(w io.Writer, files []policy.File, diags hcl.Diagnostics) error {
	if len(diags) == 0 {
		return nil
	}
	slices.SortStableFunc(diags, func(a, b *hcl.Diagnostic) int {
		if a.Subject == nil || b.Subject == nil || a.Subject.Filename != b.Subject.Filename {
			return 0
		}
		return a.Subject.Start.Byte - b.Subject.Start.Byte
	})
	for _, d := range diags {
		writeDiagnostic(w, files, d)
	}
	if diags.HasErrors() {
		fmt.Fprintf(w, "nodegate: %s in the policy; nothing was done\n", report.Count(len(diags.Errs()), "mistake"))
		return exit(exitUsage)
	}
	return nil
}

func writeDiagnostic(w io.Writer, files []policy.File, d *hcl.Diagnostic) {
	if d.Subject == nil {
		fmt.Fprintf(w, "%s: %s\n", d.Summary, d.Detail)
		return
	}
	at := d.Subject.Start
	fmt.Fprintf(w, "%s:%d:%d: %s: %s\n", d.Subject.Filename, at.Line, at.Column, strings.TrimSuffix(d.Summary, "."), d.Detail)
	i := slices.IndexFunc(files, func(f policy.File) bool { return f.Name == d.Subject.Filename })
	if i < 0 {
		return
	}
	lines := strings.SplitN(string(files[i].Text[:min(len(files[i].Text), d.Subject.Start.Byte+400)]), "\n", at.Line+1)
	if at.Line > len(lines) || strings.TrimSpace(lines[at.Line-1]) == "" {
		return
	}
	line := strings.ToValidUTF8(strings.ReplaceAll(lines[at.Line-1], "\t", " "), "?")
	if len(line) > 120 {
		return
	}
	marks := 1
	if d.Subject.End.Line == at.Line {
		marks = max(1, d.Subject.End.Column-at.Column)
	}
	fmt.Fprintf(w, "    %s\n    %s%s\n", line, strings.Repeat(" ", at.Column-1), strings.Repeat("^", marks))
}
