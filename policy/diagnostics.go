package policy

import (
	"cmp"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
)

// WriteDiagnostics writes each diagnostic with an excerpt of the file, sorted by position within a file.
func WriteDiagnostics(w io.Writer, files []File, diags hcl.Diagnostics) {
	slices.SortStableFunc(diags, func(a, b *hcl.Diagnostic) int {
		if a.Subject == nil || b.Subject == nil || a.Subject.Filename != b.Subject.Filename {
			return 0
		}
		return a.Subject.Start.Byte - b.Subject.Start.Byte
	})
	for _, d := range diags {
		writeDiagnostic(w, files, d)
	}
}

// mayHoldSecret reports whether the last line is part of a command or of a variable's value, whose arguments may be tokens. The journal
// keeps what the gate prints, and every user may read it.
func mayHoldSecret(lines []string) bool {
	if inSecretBlock(lines) {
		return true
	}
	attribute := regexp.MustCompile(`^\s*(?:[^{}=]*\{\s*)*"?([A-Za-z_][\w-]*)"?\s*[=:]`)
	for _, line := range slices.Backward(lines) {
		if m := attribute.FindStringSubmatch(line); m != nil {
			return slices.Contains([]string{"on_held", "command", "default"}, m[1])
		}
		if strings.ContainsAny(line, "{}") {
			return false // the block begins or ends here
		}
	}
	return false
}

// inSecretBlock reports whether the last line is in the block of a variable or of a program, and has more than its name and type, in a
// gate block after on_held, or in a file of values. Blocks begin in the first column, which also holds for a value of many lines.
func inSecretBlock(lines []string) bool {
	block := regexp.MustCompile(`^(?:(variable|[a-z]+\s+"?exec\b|[A-Za-z_][\w-]*\s*=)|(gate)\b|[a-z_]+\b)`)
	plain := regexp.MustCompile(`^\s*((variable|check)\s+"[^"]*"\s*\{?\s*)?` +
		`(type\s*=\s*["\w(), ]*|timeout\s*=\s*"[\w.]*"|stages\s*=\s*\[["\w, ]*\])?\}?\s*$`)
	for i, line := range slices.Backward(lines) {
		if m := block.FindStringSubmatch(line); m != nil {
			return m[1] != "" && !plain.MatchString(lines[len(lines)-1]) || m[2] != "" && strings.Contains(strings.Join(lines[i:], "\n"), "on_held")
		}
	}
	return false
}

func writeDiagnostic(w io.Writer, files []File, d *hcl.Diagnostic) {
	if d.Subject == nil || d.Subject.Filename == "" {
		fmt.Fprintf(w, "%s: %s\n", d.Summary, d.Detail)
		return
	}
	at, summary, id := d.Subject.Start, strings.TrimSuffix(d.Summary, "."), ""
	if rule := RuleID(d.Summary); d.Severity == hcl.DiagWarning && !strings.Contains(d.Detail, `"`+rule+":") {
		id = " [" + rule + "]" // what lint { allow } takes
	}
	if summary == "" { // advice about the whole block: no excerpt
		fmt.Fprintf(w, "%s:%d:%d: Warning: %s%s\n", d.Subject.Filename, at.Line, at.Column, d.Detail, id)
		return
	}
	if d.Severity == hcl.DiagWarning {
		summary = "Warning: " + summary
	}
	fmt.Fprintf(w, "%s:%d:%d: %s: %s%s\n", d.Subject.Filename, at.Line, at.Column, summary, d.Detail, id)
	i := slices.IndexFunc(files, func(f File) bool { return f.Name == d.Subject.Filename })
	if i < 0 {
		return
	}
	lines := strings.SplitN(string(files[i].Text[:min(len(files[i].Text), d.Subject.Start.Byte+400)]), "\n", at.Line+1)
	if at.Line > len(lines) || strings.TrimSpace(lines[at.Line-1]) == "" {
		return
	}
	line := strings.ToValidUTF8(strings.ReplaceAll(lines[at.Line-1], "\t", " "), "?")
	marks := 1
	if d.Subject.End.Line == at.Line {
		marks = max(1, d.Subject.End.Column-at.Column)
	}
	if mayHoldSecret(lines[:at.Line]) { // the line without its value
		name := regexp.MustCompile(`^\s*(?:(?:variable|check)\s+"[^"]*"\s*\{\s*)?(?:command|on_held|default)\s*=|^[A-Za-z_][\w-]*\s*=|$`)
		line = name.FindString(line) + " ..."
		if marks = min(marks, len(line)-at.Column+1); marks < 1 {
			at.Column, marks = len(line)-2, 3
		}
	}
	if len(line) <= 120 && strings.TrimSpace(line) != "..." {
		fmt.Fprintf(w, "    %s\n    %s%s\n", line, strings.Repeat(" ", at.Column-1), strings.Repeat("^", marks))
	}
}

// RuleID returns the id of a kind of message, from its summary: "harmful-value".
func RuleID(summary string) string {
	return cmp.Or(strings.ToLower(strings.ReplaceAll(strings.TrimSuffix(summary, "."), " ", "-")), "advice")
}
