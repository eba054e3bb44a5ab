package report_test

import (
	"bytes"
	"strings"
	"testing"

	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/assert"
	"nodegate/internal/require"
)

const good = `{"apiVersion":"nodegate/v1","kind":"Report","node":{"name":"a"},"results":[` +
	`{"got":"loaded","name":"module","severity":"block","verdict":"pass"}],` +
	`"stage":"boot","time":"2026-11-20T10:00:00.000Z","verdict":"pass"}` + "\n"

func TestDecodeNamesThePlace(t *testing.T) {
	in := func(from, to string) string { return strings.Replace(good, from, to, 1) }
	for _, c := range []struct{ what, text, want string }{
		{"empty", "", "f.json:1:1: the file is empty; write a report with `nodegate check --format json`"},
		{"white space", " \n ", "f.json:2:2: the file is empty; write a report with `nodegate check --format json`"},
		{"not JSON", "# a comment\n", "f.json:1:1: not valid JSON: invalid character '#' looking for beginning of value"},
		{"broken in the middle", "{\n  \"kind\": oops\n}", "f.json:2:11: not valid JSON: invalid character 'o' looking for beginning of value"},
		{"truncated", good[:40], "f.json:1:41: the report is truncated"},
		{"broken after a good one", good + "\n{\"a\" 1}\n", "f.json:3:6: not valid JSON: invalid character '1' after object key"},
		{"a list", "[1]", "f.json:1:2: not a nodegate report: json: cannot unmarshal array into Go value of type report.Report"},
		{"another kind", `{"apiVersion":"nodegate/v1","kind":"Snapshot"}`,
			`f.json:1:1: not a nodegate/v1 Report but "nodegate/v1" "Snapshot"; write a report with ` + "`nodegate check --format json`"},
		{"another version", in("nodegate/v1", "nodegate/v2"),
			`f.json:1:1: not a nodegate/v1 Report but "nodegate/v2" "Report"; write a report with ` + "`nodegate check --format json`"},
		{"another verdict", in(`"verdict":"pass"}]`, `"verdict":"good"}]`),
			`f.json:1:1: not a nodegate report: unknown verdict "good"; verdicts: pass, warn, fail, unknown, skipped`},
		{"warn as the node's verdict", in(`"verdict":"pass"}`+"\n", `"verdict":"warn"}`+"\n"),
			`f.json:1:1: a node's verdict must be pass, fail or unknown; got warn`},
		{"no name", in(`"name":"module"`, `"name":""`), "f.json:1:1: results[0] has no name"},
		{"duplicate name", in(`"results":[`, `"results":[{"name":"module","verdict":"pass"},`),
			`f.json:1:1: results[1]: duplicate result "module"`},
		{"a number for a name", in(`"name":"module"`, `"name":17`), "results.name must not be a number"},
		{"a number in watch's report", `{"kind":"Watch","audit":{"services":1},"report":` + "\n" + in(`"name":"module"`, `"name":17`) + "}",
			"f.json:2:101: results.name must not be a number"},
		{"too many", in(`"results":[`, `"results":[`+strings.Repeat(`{},`, 10_001)), "f.json:1:1: 10002 results; a report may have at most 10000"},
	} {
		reports, err := report.Decode("f.json", strings.NewReader(c.text))
		assert.True(t, err != nil && strings.Contains(err.Error(), c.want) && strings.HasPrefix(err.Error(), "f.json:"),
			"%s: %v\nwant %s", c.what, err, c.want)
		assert.True(t, c.what != "broken after a good one" || len(reports) == 1, "%s: %d reports", c.what, len(reports))
	}
	_, err := report.Decode("f.json", endless{})
	assert.True(t, err != nil && err.Error() == "f.json: larger than 64 MiB, the limit for a file of reports", "endless: %v", err)
}

// endless is a file that never ends.
type endless struct{}

func (endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = ' '
	}
	return len(b), nil
}

// FuzzDecode: every file yields an error, or reports that can be written in every format and decoded again.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte(`{"apiVersion":"nodegate/v1","kind":"Report","verdict":"pass","results":[{"name":"a","verdict":"skipped"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		reports, _ := report.Decode("f", bytes.NewReader(text))
		for _, r := range reports {
			var out bytes.Buffer
			for _, format := range []string{"text", "junit", "prometheus", "json"} {
				write := report.Renderer(format, report.Plain, true)
				out.Reset()
				require.NoError(t, write(&out, r.Report), "%s", format)
			}
			if again, err := report.Decode("again", &out); err != nil || len(again) != 1 {
				t.Fatalf("%d reports, %v", len(again), err)
			}
		}
	})
}

// TestWatchIsAReport: watch's document contains the newest report of a node.
func TestWatchIsAReport(t *testing.T) {
	reports, err := report.Decode("watch.json", strings.NewReader(`{"apiVersion":"nodegate/v1","kind":"Watch","rounds":7,"report":`+good+`}`))
	if err != nil || len(reports) != 1 || reports[0].Node.Name != "a" || reports[0].Stage != "boot" || len(reports[0].Results) != 1 {
		t.Errorf("%v, %+v", err, reports)
	}
}
