package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"nodegate/internal/verdict"
)

// Limits for a file of reports. A real report has about a hundred results and
// 100 KiB.
const (
	MaxFile    = 64 << 20 // bytes in a file of reports, or a status
	maxResults = 10_000
)

// Read is a decoded report with its source.
type Read struct {
	Report
	File string // with line and column, unless it is the first report of its file
	// Partial is true for a console report: it lacks the checks that pass.
	Partial bool
}

// Decode reads the reports in a file: one or several in sequence, of kind Report
// or Watch. The error names file, line and column. Decode returns the reports
// before the error too.
func Decode(file string, r io.Reader) ([]Read, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxFile+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(text) > MaxFile {
		return nil, fmt.Errorf("%s: larger than %d MiB, the limit for a file of reports", file, MaxFile>>20)
	}
	var reports []Read
	begun := place{file: file, text: text}
	words := map[string]string{}
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
		report, err := decode(raw, words)
		if err != nil {
			at := begin
			if wrong, is := errors.AsType[*json.UnmarshalTypeError](err); is {
				at += wrong.Offset
			}
			return reports, fmt.Errorf("%s: %w", position(file, text, at), err)
		}
		read := Read{Report: report, File: file}
		if begin > 0 {
			read.File = begun.positionAt(begin)
		}
		reports = append(reports, read)
	}
}

// syntaxAt returns the position of a syntax error. The decoder's offset is relative to
// the end of the last complete document.
func syntaxAt(file string, text []byte, done int64, err error) string {
	var syntax *json.SyntaxError
	if !errors.As(err, &syntax) {
		return position(file, text, int64(len(text)))
	}
	var raw json.RawMessage
	if retried := json.Unmarshal(text[done:], &raw); errors.As(retried, &syntax) {
		done += max(0, syntax.Offset-1) // Offset includes the invalid byte
	}
	return position(file, text, done)
}

func jsonError(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("the file is empty; write a report with `nodegate check --format json`")
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the report is truncated")
	}
	if strings.Contains(err.Error(), `'\x1f'`) { // the first byte of gzip
		return errors.New("not valid JSON: the file is compressed; unpack it with gunzip")
	}
	return fmt.Errorf("not valid JSON: %w", err)
}

// position returns file:line:column of a byte; lines and columns count from 1.
func position(file string, text []byte, offset int64) string {
	p := place{file: file, text: text}
	return p.positionAt(min(offset, int64(len(text))))
}

// place counts lines up to increasing offsets. It never rescans: a file may hold thousands of reports.
type place struct {
	file string
	text []byte
	line int   // lines before done
	done int64 // bytes counted so far
	from int64 // where the last line begins
}

func (p *place) positionAt(offset int64) string {
	passed := p.text[p.done:offset]
	p.line += bytes.Count(passed, []byte("\n"))
	if last := bytes.LastIndexByte(passed, '\n'); last >= 0 {
		p.from = p.done + int64(last) + 1
	}
	p.done = offset
	return fmt.Sprintf("%s:%d:%d", p.file, p.line+1, offset-p.from+1)
}

// decode returns the report of one document. words interns the check names of all reports in a file, so that each name is stored once.
func decode(raw json.RawMessage, words map[string]string) (Report, error) {
	var d Report
	var watch struct {
		Kind   string          `json:"kind"`
		Report json.RawMessage `json:"report"`
	}
	begin := 0
	if err := json.Unmarshal(raw, &watch); err == nil && watch.Kind == KindWatch && watch.Report != nil {
		begin, raw = bytes.Index(raw, watch.Report), watch.Report
	}
	if err := json.Unmarshal(raw, &d); err != nil {
		if wrong, is := errors.AsType[*json.UnmarshalTypeError](err); is && wrong.Field != "" {
			wrong.Offset += int64(begin)
			return Report{}, fmt.Errorf("%s must not be a %s: %w", wrong.Field, wrong.Value, err)
		}
		return Report{}, fmt.Errorf("not a nodegate report: %w", err)
	}
	d.Results = slices.Clone(d.Results) // drop the spare capacity left by decoding, because all results stay in memory
	for i := range d.Results {
		res := &d.Results[i]
		res.Name = intern(words, res.Name)
	}
	return d, d.validate()
}

// intern returns the first stored copy of word.
func intern(words map[string]string, word string) string {
	if first, seen := words[word]; seen {
		return first
	}
	words[word] = word
	return word
}

// validate returns an error if a decoded report could not come from New.
func (r Report) validate() error {
	if r.APIVersion != APIVersion || r.Kind != KindReport {
		return fmt.Errorf("not a nodegate/v1 Report but %.60q %.60q; write a report with `nodegate check --format json`", r.APIVersion, r.Kind)
	}
	if len(r.Results) > maxResults {
		return fmt.Errorf("%d results; a report may have at most %d", len(r.Results), maxResults)
	}
	if r.Verdict == verdict.Warn || r.Verdict == verdict.Skipped {
		return fmt.Errorf("a node's verdict must be pass, fail or unknown; got %s", r.Verdict)
	}
	seen := map[string]bool{}
	for i, res := range r.Results {
		switch {
		case res.Name == "":
			return fmt.Errorf("results[%d] has no name", i)
		case seen[res.Name]:
			return fmt.Errorf("results[%d]: duplicate result %.100q", i, res.Name)
		}
		seen[res.Name] = true
	}
	return nil
}
