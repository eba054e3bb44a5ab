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

// A console report is a report in a few lines on the console. The console's log outlives the machine: a serial log, or EC2's
// get-console-output. Each line is `nodegate-report/1 ID PART/PARTS SUM DATA`. ID is the checksum of the whole report, and SUM is
// the checksum of PART and DATA; both are CRC-32. DATA is part of the report's JSON, compressed with raw DEFLATE and encoded in
// base64. The report leaves out the checks that pass, and the times: a repeated report is identical to the first, so a line lost in
// one copy can be taken from another.
const consolePrefix = "nodegate-report/1"

const (
	chunk       = 96 // characters of data in a line
	maxParts    = 500
	maxUnpacked = 4 << 20 // bytes of a report that was unpacked
	maxConsole  = 64 << 20

	maxReports = 1000 // of one console, the newest
)

// ConsoleReport returns the lines of the console report for r.
func ConsoleReport(r Report) ([]string, error) {
	r.Time, r.DurationMs, r.Audit = "", 0, nil
	r.Results = slices.DeleteFunc(slices.Clone(r.Results), func(res Result) bool { return res.Verdict.Fine() })
	for i := range r.Results {
		r.Results[i].Evidence = r.Results[i].Evidence[:min(1, len(r.Results[i].Evidence))]
		r.Results[i].Reason = "" // nodegate explain has it
	}
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
		lines = append(lines, fmt.Sprintf("%s %08x %s %08x %s", consolePrefix, id, part, partSum(part, piece), piece))
	}
	return lines, nil
}

func partSum(part, data string) uint32 { return crc32.ChecksumIEEE([]byte(part + " " + data)) }

// DecodeConsole reads the console reports in a console log. It returns the complete reports, and an error that lists the missing
// parts of the incomplete ones.
func DecodeConsole(file string, r io.Reader) ([]Read, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxConsole+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(text) > maxConsole {
		return nil, fmt.Errorf("%s: larger than %d MiB; cut off the beginning", file, maxConsole>>20)
	}
	// Other output may surround a line, or interrupt it. The newest lines come first: the last report of a node counts.
	line := regexp.MustCompile(consolePrefix + ` ([0-9a-f]{8}) (([0-9]{1,3})/([0-9]{1,3})) ([0-9a-f]{8}) ([A-Za-z0-9+/=]{1,96})`)
	byKey := map[consoleKey]map[int]string{}
	var keys []consoleKey
	dropped := 0
	for _, at := range slices.Backward(line.FindAllSubmatchIndex(text, -1)) {
		field := func(i int) string { return string(text[at[2*i]:at[2*i+1]]) }
		part, sum, data := field(2), field(5), field(6)
		n, _ := strconv.Atoi(field(3)) // digits, by the expression
		of, _ := strconv.Atoi(field(4))
		if n < 1 || n > of || of > maxParts || fmt.Sprintf("%08x", partSum(part, data)) != sum {
			continue
		}
		key := consoleKey{field(1), of}
		switch parts, known := byKey[key]; {
		case known:
			parts[n] = data
		case len(keys) == maxReports:
			dropped++
		default:
			byKey[key] = map[int]string{n: data}
			keys = append(keys, key)
		}
	}
	var reports []Read
	var wrong []error
	named := map[string]bool{}
	for _, key := range keys {
		report, err := unpackReport(key.id, key.of, byKey[key])
		switch {
		case err != nil:
			wrong = append(wrong, fmt.Errorf("%s: report %s: %w", file, key.id, err))
		case !named[report.Node.Name]: // keep only the last report of a node
			named[report.Node.Name] = true
			reports = append(reports, Read{Report: report, File: file, Partial: true})
		}
	}
	if dropped > 0 {
		wrong = append(wrong, fmt.Errorf("%s: more than %d reports; ignored %d older lines", file, maxReports, dropped))
	}
	slices.Reverse(reports)
	slices.Reverse(wrong)
	if len(keys) == 0 {
		wrong = append(wrong, fmt.Errorf("%s: no console report of a held node found; its lines begin with %s", file, consolePrefix))
	}
	return reports, errors.Join(wrong...)
}

// consoleKey identifies the report that a line belongs to. Any program can write to a console, so the id is not verified before the
// report is complete.
type consoleKey struct {
	id string
	of int
}

func unpackReport(id string, of int, parts map[int]string) (Report, error) {
	data := ""
	for i := range of {
		p, ok := parts[i+1]
		if !ok {
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
	text, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(packed)), maxUnpacked))
	if err != nil {
		return Report{}, err
	}
	return decode(text, map[string]string{})
}
