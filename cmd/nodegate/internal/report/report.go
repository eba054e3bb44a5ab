// Package report defines the one schema of nodegate's reports. It encodes them,
// decodes them within bounds, and writes them for people and for other tools.
// Every format uses the same words: pass, warn, fail, unknown, skipped.
package report

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/verdict"
	"nodegate/policy"
)

// Report is one node's report as other tools read it. Fields are added, never
// renamed.
type Report struct {
	APIVersion string          `json:"apiVersion"`      // nodegate/v1
	Kind       string          `json:"kind"`            // Report
	Version    string          `json:"version"`         // of nodegate
	Node       Node            `json:"node"`            // the machine
	Policy     Policy          `json:"policy"`          // the source of the requirements
	Stage      string          `json:"stage"`           // image, boot, run or all
	Verdict    verdict.Verdict `json:"verdict"`         // pass, fail or unknown
	Time       string          `json:"time"`            // when the checks began, RFC 3339
	DurationMs float64         `json:"durationMs"`      // of the whole run
	Results    []Result        `json:"results"`         // in the order of the checks
	Audit      *Audit          `json:"audit,omitempty"` // only of `audit`

	Next string `json:"-"` // the recommended next step, for the text format
	Left string `json:"-"` // the checks that were left out, for the last line of the text format
}

// APIVersion and the kinds of documents that this package writes and reads.
const (
	APIVersion = "nodegate/v1"
	KindReport = "Report"
	KindWatch  = "Watch"
)

// Node describes the machine of a report.
type Node struct {
	Name   string `json:"name"`             // host name
	Kernel string `json:"kernel,omitempty"` // release
	OS     string `json:"os,omitempty"`     // os-release's PRETTY_NAME
	Root   string `json:"root,omitempty"`   // set for a file tree
}

// Policy describes the policy of a report.
type Policy struct {
	Files   []string `json:"files"`             // paths, or builtin:NAME.hcl
	Digest  string   `json:"digest"`            // of the text of these files and of the variables; equal on nodes with the same policy
	Enforce string   `json:"enforce,omitempty"` // "warn" if the gate holds nothing
}

// Result is the outcome of one check.
type Result struct {
	Name     string            `json:"name"`              // of the check
	Verdict  verdict.Verdict   `json:"verdict"`           // pass, warn, fail, unknown or skipped
	Severity policy.Severity   `json:"severity"`          // block or warn
	Want     string            `json:"want"`              // the required state
	Got      string            `json:"got"`               // the state found; "" if the check found none
	Fixed    bool              `json:"fixed"`             // apply corrected it in this run
	Fixable  bool              `json:"fixable,omitempty"` // apply can correct it, but may have to correct its cause first
	Was      string            `json:"was,omitempty"`     // the state before the correction
	Source   string            `json:"source"`            // file and line of the requirement
	Reason   string            `json:"reason,omitempty"`  // why it is required
	Evidence []checks.Evidence `json:"evidence"`          // observations behind the verdict
	Remedy   string            `json:"remedy,omitempty"`  // what to do
	Ref      string            `json:"ref,omitempty"`     // where the reason is documented
	Because  string            `json:"because,omitempty"` // the check whose failure causes this one
	Skipped  string            `json:"skipped,omitempty"` // the reason
	Error    string            `json:"error,omitempty"`   // why the verdict is unknown, or why a fix did not work
}

// New returns the report of a run of p's checks on h.
func New(h *host.Host, p *policy.Policy, r checks.Outcome) Report { return NewFor(Describe(h), p, r) }

// NewFor is New for a machine that is described already. It reads no file.
func NewFor(n Node, p *policy.Policy, r checks.Outcome) Report {
	out := Report{
		APIVersion: APIVersion, Kind: KindReport, Version: p.Version, Node: n, Policy: NewPolicy(p),
		Stage: string(r.Stage), Verdict: r.Verdict(), Time: r.Started.UTC().Format("2006-01-02T15:04:05.000Z"),
		DurationMs: float64(r.Duration.Microseconds()) / 1000, Results: []Result{},
	}
	for _, res := range r.Results {
		out.Results = append(out.Results, NewResult(res))
	}
	return out
}

// NewPolicy returns a report's description of its policy.
func NewPolicy(p *policy.Policy) Policy {
	out := Policy{Files: p.Files, Digest: p.Digest}
	if p.Gate.Enforce == policy.Warn {
		out.Enforce = string(p.Gate.Enforce)
	}
	return out
}

// NewResult returns the outcome of one check in the form for other tools.
func NewResult(res checks.Result) Result {
	out := Result{
		Name: res.Name, Verdict: res.Verdict, Severity: res.Metadata.Severity, Want: res.State.Want, Got: res.State.Got,
		Fixed: res.Fixed, Was: res.Was, Source: res.Metadata.Source(), Reason: res.Metadata.Reason, Evidence: res.State.Evidence,
		Ref: res.Metadata.Ref, Because: res.State.Cause, Skipped: res.State.Skip,
	}
	if out.Evidence == nil {
		out.Evidence = []checks.Evidence{}
	}
	if !out.Verdict.Fine() {
		out.Remedy = res.State.Remedy
		out.Fixable = res.Err == nil && len(res.State.Changes) > 0 && res.State.Stuck == ""
	}
	if res.Err != nil {
		out.Error = OneLine(Words(res.Err))
	}
	return out
}

// notReached is the error of a check that --timeout ended before it began.
const notReached = "not reached in time"

// NotReached reports whether time ran out, or a signal came, before a check began.
func NotReached(err error) bool {
	return err != nil && slices.Contains([]string{context.DeadlineExceeded.Error(), context.Canceled.Error()}, err.Error())
}

// Words returns an error in the words of an operator, without those of Go and of system calls.
func Words(err error) string {
	words := err.Error()
	if NotReached(err) {
		return notReached
	}
	return strings.NewReplacer(context.DeadlineExceeded.Error(), "timed out", "lstat ", "reading ").Replace(words)
}

// Describe reads the name and the versions of a machine. Unreadable ones stay empty.
func Describe(h *host.Host) Node {
	var n Node
	if h.Live() {
		n.Name, _ = h.Text("/proc/sys/kernel/hostname")
		n.Kernel, _ = h.Kernel.Release()
	} else {
		n.Root = h.Root
		n.Name, _ = h.Text("/etc/hostname")
	}
	release, _ := h.OSRelease()
	n.OS = release["PRETTY_NAME"]
	return n
}

// Observed returns the value that a check found, or the reason for a missing value.
func (r Result) Observed() string {
	switch r.Verdict {
	case verdict.Unknown:
		return r.Error
	case verdict.Skipped:
		return r.Skipped
	}
	return r.Got
}

// summary returns the result in one line.
func (r Result) summary() string {
	switch {
	case r.Error != "":
		return r.Error
	case r.Skipped != "":
		return r.Skipped
	case r.Because != "":
		return "because of " + r.Because
	}
	return "want " + r.Want + ", got " + r.Got
}

func (r Report) duration() time.Duration {
	return time.Duration(r.DurationMs * float64(time.Millisecond)).Round(10 * time.Microsecond)
}

// began returns the start time of the checks, or the zero time if the report has no valid time.
func (r Report) began() time.Time {
	t, _ := time.Parse(time.RFC3339, r.Time) // the zero time with an error
	return t
}

// ResultsBehind returns the results that cause a node's verdict: those with the same verdict that are not symptoms of another result.
// If all of them are symptoms, because their cause has a different verdict such as unknown, it returns all of them, so that a failing
// node always has a reason.
func ResultsBehind(v verdict.Verdict, results []Result) []Result {
	var causes, all []Result
	for _, r := range results {
		if r.Verdict != v {
			continue
		}
		if all = append(all, r); r.Because == "" {
			causes = append(causes, r)
		}
	}
	if causes == nil {
		return all
	}
	return causes
}

// Count returns "1 mistake", "2 mistakes".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// NoneApplies reports that all n requirements are skipped, so that nothing was checked.
func NoneApplies(n int) string { return fmt.Sprintf("0 of %d requirements apply here", n) }

// OneLine joins the lines of s with "; ".
func OneLine(s string) string { return strings.ReplaceAll(s, "\n", "; ") }
