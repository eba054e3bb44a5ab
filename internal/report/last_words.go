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
	type words struct {
		id    string
		parts []string
	}
	var all []*words
	for _, m := range line.FindAllSubmatch(text, -1) {
		id, part, sum, data := string(m[1]), string(m[2]), string(m[5]), string(m[6])
		n, _ := strconv.Atoi(string(m[3])) // digits, by the expression
		of, _ := strconv.Atoi(string(m[4]))
		if n < 1 || n > of || of > mostParts || fmt.Sprintf("%08x", sumOf(part, data)) != sum {
			continue
		}
		i := slices.IndexFunc(all, func(w *words) bool { return w.id == id && len(w.parts) == of })
		if i < 0 {
			i = len(all)
			all = append(all, &words{id, make([]string, of)})
		}
		all[i].parts[n-1] = data
	}
	var reports []Read
	var wrong []error
	for _, w := range all {
		report, err := unpack(w.id, w.parts)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s: report %s: %w", file, w.id, err))
			continue
		}
		// Of one node the last one counts.
		reports = slices.DeleteFunc(reports, func(r Read) bool { return r.Node.Name == report.Node.Name })
		reports = append(reports, Read{report, file})
	}
	if len(all) == 0 {
		wrong = append(wrong, fmt.Errorf("%s: no last words of a held node; each line of them begins with %s", file, lastWords))
	}
	return reports, errors.Join(wrong...)
}

func unpack(id string, parts []string) (Report, error) {
	data := ""
	for i, p := range parts {
		if p == "" {
			return Report{}, fmt.Errorf("part %d of %d is missing or torn", i+1, len(parts))
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
	return decode(text)
}
