package fleet

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Report is what is used of a node's report.
type Report struct {
	File    string // where it was read
	Node    string
	Stage   string
	Verdict string
	Time    string // when the checks ran, RFC 3339; "" where the report does not say
	Results []Result
}

// Result is one check of a Report.
type Result struct {
	Name     string
	Verdict  string // one of the Verdicts
	Severity string
	Got      string // what was found; where it could not tell the error, where it was skipped why
	Because  string // the check whose failure explains this one
	Remedy   string
}

// Verdicts is what a check can say, the worst first.
func Verdicts() []string { return []string{"fail", "unknown", "warn", "pass", "skip"} }

// What a report may hold at most. A real one has about a hundred checks and 100 KiB.
const (
	maxFile   = 64 << 20
	maxChecks = 10_000
)

// document is the part of a report's JSON that is read.
type document struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Node       struct {
		Name string `json:"name"`
	} `json:"node"`
	Stage   string `json:"stage"`
	Verdict string `json:"verdict"`
	Time    string `json:"time"`
	Results []struct {
		Name     string `json:"name"`
		Verdict  string `json:"verdict"`
		Severity string `json:"severity"`
		Got      string `json:"got"`
		Because  string `json:"because"`
		Remedy   string `json:"remedy"`
		Error    string `json:"error"`
		Skipped  string `json:"skipped"`
	} `json:"results"`
	Report *document `json:"report"` // of a Watch: what it found last
}

// Read reads the reports in a file: one, or several one after the other. The
// error tells file, line and column; what came before it is answered with it.
func Read(file string, r io.Reader) ([]Report, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("%s: larger than %d MiB, so no report of a node", file, maxFile>>20)
	}
	var reports []Report
	in := json.NewDecoder(bytes.NewReader(text))
	for {
		var raw json.RawMessage
		err := in.Decode(&raw)
		if errors.Is(err, io.EOF) && len(reports) > 0 {
			return reports, nil
		}
		if err != nil {
			return reports, fmt.Errorf("%s: %w", syntaxAt(file, text, in.InputOffset(), err), jsonError(err))
		}
		begin := in.InputOffset() - int64(len(raw))
		report, err := decode(raw)
		if err != nil {
			var wrong *json.UnmarshalTypeError
			at := begin
			if errors.As(err, &wrong) {
				at += wrong.Offset
			}
			return reports, fmt.Errorf("%s: %w", position(file, text, at), err)
		}
		report.File = position(file, text, begin)
		if begin == 0 {
			report.File = file
		}
		if report.Node == "" {
			report.Node = report.File // an image has no name
		}
		reports = append(reports, report)
	}
}

// syntaxAt finds where JSON ends to be JSON: after whole documents the decoder
// counts from the last one.
func syntaxAt(file string, text []byte, done int64, err error) string {
	var syntax *json.SyntaxError
	if !errors.As(err, &syntax) {
		return position(file, text, int64(len(text)))
	}
	var raw json.RawMessage
	if again := json.Unmarshal(text[done:], &raw); errors.As(again, &syntax) {
		done += max(0, syntax.Offset-1) // it counts the byte that is wrong
	}
	return position(file, text, done)
}

func jsonError(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("empty; nodegate check --format json writes a report")
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the report ends in the middle")
	}
	return fmt.Errorf("no JSON: %w", err)
}

// position is file:line:column of a byte, counted from 1.
func position(file string, text []byte, offset int64) string {
	before := text[:min(offset, int64(len(text)))]
	line := bytes.Count(before, []byte("\n")) + 1
	column := len(before) - bytes.LastIndexByte(before, '\n')
	return fmt.Sprintf("%s:%d:%d", file, line, column)
}

func decode(raw json.RawMessage) (Report, error) {
	var d document
	if err := json.Unmarshal(raw, &d); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) && wrong.Field != "" {
			return Report{}, fmt.Errorf("%s is a %s here, not what a report has there: %w", wrong.Field, wrong.Value, err)
		}
		return Report{}, fmt.Errorf("no report of a node: %w", err)
	}
	if d.Kind == "Watch" && d.Report != nil {
		d = *d.Report
	}
	if d.APIVersion != "nodegate/v1" || d.Kind != "Report" {
		return Report{}, fmt.Errorf("this is %.60q %.60q, not a nodegate/v1 Report; nodegate check --format json writes one", d.APIVersion, d.Kind)
	}
	if len(d.Results) > maxChecks {
		return Report{}, fmt.Errorf("%d results; a report has at most %d", len(d.Results), maxChecks)
	}
	if !slices.Contains([]string{"pass", "fail", "unknown"}, d.Verdict) {
		return Report{}, fmt.Errorf("the verdict is pass, fail or unknown; %.60q is none of them", d.Verdict)
	}
	r := Report{Node: d.Node.Name, Stage: d.Stage, Verdict: d.Verdict, Time: d.Time}
	seen := map[string]bool{}
	for i, res := range d.Results {
		switch {
		case res.Name == "":
			return Report{}, fmt.Errorf("results[%d] has no name", i)
		case seen[res.Name]:
			return Report{}, fmt.Errorf("results[%d]: a second result of %.100q", i, res.Name)
		case !slices.Contains(Verdicts(), res.Verdict):
			return Report{}, fmt.Errorf("results[%d]: the verdict of %.100q is fail, unknown, warn, pass or skip; %.60q is none of them", i, res.Name, res.Verdict)
		}
		seen[res.Name] = true
		got := res.Got
		switch res.Verdict {
		case "unknown":
			got = res.Error
		case "skip":
			got = res.Skipped
		}
		r.Results = append(r.Results, Result{res.Name, res.Verdict, res.Severity, got, res.Because, res.Remedy})
	}
	return r, nil
}
