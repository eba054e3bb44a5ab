package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// document is a report as other tools read it. Fields are added, never renamed.
type document struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Node       node           `json:"node"`
	Policy     policyDocument `json:"policy"`
	Stage      checks.Stage   `json:"stage"`
	Verdict    checks.Verdict `json:"verdict"`
	Time       string         `json:"time"`
	DurationMs float64        `json:"durationMs"`
	Results    []result       `json:"results"`
	Audit      *auditDetail   `json:"audit,omitempty"`

	report checks.Report
}

type node struct {
	Name   string `json:"name"`
	Kernel string `json:"kernel,omitempty"`
	OS     string `json:"os,omitempty"`
	Root   string `json:"root,omitempty"` // of a file tree
}

type policyDocument struct {
	Files []string `json:"files"`
}

type result struct {
	Name     string            `json:"name"`
	Verdict  checks.Verdict    `json:"verdict"`
	Severity policy.Severity   `json:"severity"`
	Want     string            `json:"want"`
	Got      string            `json:"got"`
	Fixed    bool              `json:"fixed"`
	Was      string            `json:"was,omitempty"`
	Source   string            `json:"source"`
	Reason   string            `json:"reason,omitempty"`
	Evidence []checks.Evidence `json:"evidence"`
	Remedy   string            `json:"remedy,omitempty"`
	Ref      string            `json:"ref,omitempty"`
	Because  string            `json:"because,omitempty"`
	Skipped  string            `json:"skipped,omitempty"`
	Error    string            `json:"error,omitempty"`
}

func newDocument(h *host.Host, p *policy.Policy, r checks.Report) document {
	d := document{
		APIVersion: "nodegate/v1", Kind: "Report", Node: describe(h), Policy: policyDocument{p.Files},
		Stage: r.Stage, Verdict: r.Verdict(), Time: r.Started.UTC().Format("2006-01-02T15:04:05.000Z"),
		DurationMs: float64(r.Duration.Microseconds()) / 1000, Results: []result{}, report: r,
	}
	for _, res := range r.Results {
		d.Results = append(d.Results, newResult(res))
	}
	return d
}

func newResult(res checks.Result) result {
	out := result{
		Name: res.Name, Verdict: res.Verdict, Severity: res.Metadata.Severity, Want: res.State.Want, Got: res.State.Got,
		Fixed: res.Fixed, Was: res.Was, Source: source(res.Metadata), Reason: res.Metadata.Reason, Evidence: res.State.Evidence,
		Ref: res.Metadata.Ref, Because: res.State.Cause, Skipped: res.State.Skip,
	}
	if out.Evidence == nil {
		out.Evidence = []checks.Evidence{}
	}
	if res.Verdict != checks.Pass && res.Verdict != checks.Skip {
		out.Remedy = res.State.Remedy
	}
	if res.Err != nil {
		out.Error = oneLine(res.Err.Error())
	}
	return out
}

// describe names the node: by its host name, kernel and os-release, as far as
// it tells them.
func describe(h *host.Host) node {
	var n node
	if h.Live() {
		n.Name, _ = h.Text("/proc/sys/kernel/hostname")
		n.Kernel, _ = h.Kernel.Release()
	} else {
		n.Root = h.Root
		n.Name, _ = h.Text("/etc/hostname")
	}
	release, _ := h.Text("/etc/os-release")
	for _, line := range strings.Split(release, "\n") {
		if v, ok := strings.CutPrefix(line, "PRETTY_NAME="); ok {
			n.OS = strings.Trim(v, `"'`)
		}
	}
	return n
}

// source is the file and line that asks for a requirement, and those of the
// override that changed it.
func source(a policy.Metadata) string {
	if a.Range.Filename == "" {
		return ""
	}
	s := fmt.Sprintf("%s:%d", a.Range.Filename, a.Range.Start.Line)
	if a.Override.Filename != "" {
		s += fmt.Sprintf(", overridden at %s:%d", a.Override.Filename, a.Override.Start.Line)
	}
	return s
}

type renderer func(io.Writer, document) error

// renderer is the writer of the asked format.
func (o *options) renderer(stdout io.Writer) (renderer, error) {
	switch o.format {
	case "text":
		paint := painter(stdout)
		if o.output != "" {
			paint = plain
		}
		return func(w io.Writer, d document) error { return writeText(w, d, paint, o.verbose) }, nil
	case "json":
		return writeJSON, nil
	case "junit":
		return writeJUnit, nil
	case "tap":
		return writeTAP, nil
	case "prometheus":
		return writePrometheus, nil
	case "npd":
		return writeNPD, nil
	}
	return nil, fmt.Errorf("--format is text, json, junit, tap, prometheus or npd; %q is none of them", o.format)
}

// paint colours a word; on anything but a terminal it leaves it alone.
type paint func(colour, word string) string

// The terminal colours (ECMA-48).
const (
	red    = "31"
	green  = "32"
	yellow = "33"
	dim    = "2"
	bold   = "1"
)

func plain(_, word string) string { return word }

func painter(w io.Writer) paint {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" || !host.IsTerminal(f) {
		return plain
	}
	return func(colour, word string) string { return "\x1b[" + colour + "m" + word + "\x1b[0m" }
}
