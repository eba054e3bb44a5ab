package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"nodegate/internal/verdict"
)

// What a file of reports may hold at most. A real report has about a hundred
// results and 100 KiB.
const (
	MaxFile    = 64 << 20 // bytes in a file of reports, or a status
	maxResults = 10_000
)

// Read is a report as it was read.
type Read struct {
	Report
	File string // with line and column, if it is not the first of its file
	// Partial is true of last words: what passes is not in them.
	Partial bool
}

// Decode reads the reports in a file: one, or several one after the other, of
// kind Report or Watch. The error names file, line and column; the reports
// before it are returned with it.
func Decode(file string, r io.Reader) ([]Read, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxFile+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(text) > MaxFile {
		return nil, fmt.Errorf("%s: larger than %d MiB, so no report of a node", file, MaxFile>>20)
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
			read.File = begun.at(begin)
		}
		reports = append(reports, read)
	}
}

// syntaxAt returns the place of a syntax error: after whole documents the decoder
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

// position returns file:line:column of a byte, counted from 1.
func position(file string, text []byte, offset int64) string {
	p := place{file: file, text: text}
	return p.at(min(offset, int64(len(text))))
}

// place counts lines up to offsets that only grow: a file may hold thousands of reports.
type place struct {
	file string
	text []byte
	line int   // before done
	done int64 // bytes
}

func (p *place) at(offset int64) string {
	p.line += bytes.Count(p.text[p.done:offset], []byte("\n"))
	p.done = offset
	return fmt.Sprintf("%s:%d:%d", p.file, p.line+1, offset-int64(bytes.LastIndexByte(p.text[:offset], '\n')))
}

// document is a Report, or a Watch of which only the report is read.
type document struct {
	Report
	Watched *Report `json:"report"`
}

// decode returns the report of one document. words holds what several reports of a file say, so that each word is kept once.
func decode(raw json.RawMessage, words map[string]string) (Report, error) {
	var d document
	if err := json.Unmarshal(raw, &d); err != nil {
		if wrong, is := errors.AsType[*json.UnmarshalTypeError](err); is && wrong.Field != "" {
			return Report{}, fmt.Errorf("%s is a %s here, not what a report has there: %w", wrong.Field, wrong.Value, err)
		}
		return Report{}, fmt.Errorf("no report of a node: %w", err)
	}
	if d.Kind == KindWatch && d.Watched != nil {
		d.Report = *d.Watched
	}
	d.Results = slices.Clone(d.Results) // without the room that decoding left: all of them are kept
	for i := range d.Results {
		res := &d.Results[i]
		res.Name = once(words, res.Name)
	}
	return d.Report, d.check()
}

// once returns the word as it was seen first.
func once(words map[string]string, word string) string {
	if first, seen := words[word]; seen {
		return first
	}
	words[word] = word
	return word
}

// check returns an error if a decoded report is not as New makes it.
func (r Report) check() error {
	if r.APIVersion != APIVersion || r.Kind != KindReport {
		return fmt.Errorf("this is %.60q %.60q, not a nodegate/v1 Report; nodegate check --format json writes one", r.APIVersion, r.Kind)
	}
	if len(r.Results) > maxResults {
		return fmt.Errorf("%d results; a report has at most %d", len(r.Results), maxResults)
	}
	if r.Verdict == verdict.Warn || r.Verdict == verdict.Skipped {
		return fmt.Errorf("a node's verdict is pass, fail or unknown, not %s", r.Verdict)
	}
	seen := map[string]bool{}
	for i, res := range r.Results {
		switch {
		case res.Name == "":
			return fmt.Errorf("results[%d] has no name", i)
		case seen[res.Name]:
			return fmt.Errorf("results[%d]: a second result of %.100q", i, res.Name)
		}
		seen[res.Name] = true
	}
	return nil
}
