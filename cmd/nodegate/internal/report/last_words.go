package report

import (
	"bytes"
	"compress/flate"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"regexp"
	"slices"
	"strconv"
)

// Last words are a report in a few lines of console, which outlive the machine: a serial log, EC2's get-console-output. Each
// line is `nodegate-report/1 ID PART/PARTS SUM DATA`: ID is the checksum of all, SUM that of PART and DATA, both CRC-32; the data
// is base64 of raw DEFLATE of the report's JSON, without what passes, and without times: a report that is written again is
// the same, and lines that one copy lost are taken from another.
const lastWords = "nodegate-report/1"

const (
	chunk       = 96 // characters of data in a line
	mostParts   = 500
	mostWords   = 4 << 20 // bytes of a report that was unpacked
	mostConsole = 64 << 20

	mostUnfinished = 1000 // reports of one console
)

// LastWords returns the lines for a report.
func LastWords(r Report) ([]string, error) {
	r.Time, r.DurationMs, r.Audit = "", 0, nil
	r.Results = slices.DeleteFunc(slices.Clone(r.Results), func(res Result) bool { return res.Verdict.Fine() })
	for i := range r.Results {
		r.Results[i].Evidence = r.Results[i].Evidence[:min(1, len(r.Results[i].Evidence))]
		r.Results[i].Reason = "" // nodegate explain has it
	}
	return pack(r)
}

// AllWords returns the lines for a whole report; one that is too large for its reader is shortened to its last words.
func AllWords(r Report) ([]string, error) {
	lines, err := pack(r)
	if len(lines) > mostParts {
		return LastWords(r)
	}
	return lines, err
}

func pack(r Report) ([]string, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	var packed bytes.Buffer
	w, err := flate.NewWriter(&packed, flate.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(text); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	id := crc32.ChecksumIEEE(packed.Bytes())
	var lines []string
	data := base64.StdEncoding.EncodeToString(packed.Bytes())
	parts := (len(data) + chunk - 1) / chunk
	for i := range parts {
		part := fmt.Sprintf("%d/%d", i+1, parts)
		piece := data[i*chunk : min(len(data), (i+1)*chunk)]
		lines = append(lines, fmt.Sprintf("%s %08x %s %08x %s", lastWords, id, part, sumOf(part, piece), piece))
	}
	return lines, nil
}

func sumOf(part, data string) uint32 { return crc32.ChecksumIEEE([]byte(part + " " + data)) }

// DecodeConsole reads the last words in a console's log. What is incomplete is refused: the error says what is missing, beside
// the reports that are whole.
func DecodeConsole(file string, r io.Reader) ([]Read, error) {
	text, err := io.ReadAll(io.LimitReader(r, mostConsole+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(text) > mostConsole {
		return nil, fmt.Errorf("%s: larger than %d MiB; give its end", file, mostConsole>>20)
	}
	// A line may stand among others' text, and be torn.
	line := regexp.MustCompile(lastWords + ` ([0-9a-f]{8}) (([0-9]{1,3})/([0-9]{1,3})) ([0-9a-f]{8}) ([A-Za-z0-9+/=]{1,96})`)
	var g gathered
	rest := text
	for at := line.FindSubmatchIndex(rest); at != nil; at = line.FindSubmatchIndex(rest) {
		field := func(i int) string { return string(rest[at[2*i]:at[2*i+1]]) }
		part, sum, data := field(2), field(5), field(6)
		n, _ := strconv.Atoi(field(3)) // digits, by the expression
		of, _ := strconv.Atoi(field(4))
		if n >= 1 && n <= of && of <= mostParts && fmt.Sprintf("%08x", sumOf(part, data)) == sum {
			g.add(wordsKey{field(1), of}, n, data)
		}
		rest = rest[at[1]:]
	}
	var reports []Read
	var wrong []error
	named := map[string]bool{}
	for _, w := range slices.Backward(g.all) {
		if w == nil {
			continue
		}
		report, err := unpack(w.id, w.of, w.parts)
		switch {
		case err != nil:
			wrong = append(wrong, fmt.Errorf("%s: report %s: %w", file, w.id, err))
		case !named[report.Node.Name]: // of one node the last one counts
			named[report.Node.Name] = true
			reports = append(reports, Read{Report: report, File: file, Partial: true})
		}
	}
	if g.dropped > 0 {
		wrong = append(wrong, fmt.Errorf("%s: more than %d reports are incomplete, the oldest %d were passed over",
			file, mostUnfinished, g.dropped))
	}
	slices.Reverse(reports)
	slices.Reverse(wrong)
	if len(g.all) == 0 {
		wrong = append(wrong, fmt.Errorf("%s: no last words of a held node; each line of them begins with %s", file, lastWords))
	}
	return reports, errors.Join(wrong...)
}

// wordsKey tells one report's lines from another's. Anybody can write to a console: the id is not proven before all is there.
type wordsKey struct {
	id string
	of int
}

// words are the parts of one report that came.
type words struct {
	wordsKey
	parts map[int]string
}

// gathered are reports in the order in which they began. It keeps no more of them unfinished than mostUnfinished: of a log with
// more, the oldest ones are dropped.
type gathered struct {
	all        []*words // nil for one that was dropped
	byKey      map[wordsKey]*words
	unfinished int
	oldest     int // in all: nothing before it is unfinished
	dropped    int
}

func (g *gathered) add(key wordsKey, n int, data string) {
	w := g.byKey[key]
	if w == nil {
		if g.byKey == nil {
			g.byKey = map[wordsKey]*words{}
		}
		w = &words{key, map[int]string{}}
		g.byKey[key] = w
		g.all = append(g.all, w)
		g.unfinished++
	}
	_, again := w.parts[n]
	w.parts[n] = data
	if !again && len(w.parts) == w.of {
		g.unfinished--
	}
	for ; g.unfinished > mostUnfinished; g.oldest++ {
		if o := g.all[g.oldest]; len(o.parts) < o.of {
			delete(g.byKey, o.wordsKey)
			g.all[g.oldest] = nil
			g.unfinished--
			g.dropped++
		}
	}
}

func unpack(id string, of int, parts map[int]string) (Report, error) {
	data := ""
	for i := range of {
		p, came := parts[i+1]
		if !came {
			return Report{}, fmt.Errorf("part %d of %d is missing or torn", i+1, of)
		}
		data += p
	}
	packed, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		return Report{}, err
	}
	if fmt.Sprintf("%08x", crc32.ChecksumIEEE(packed)) != id {
		return Report{}, errors.New("the checksum differs")
	}
	text, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(packed)), mostWords))
	if err != nil {
		return Report{}, err
	}
	return decode(text, map[string]string{})
}
