package report

import (
	"bytes"
	"strings"
	"testing"

	"nodegate/checks"
	"nodegate/internal/assert"
	"nodegate/internal/require"
	"nodegate/internal/verdict"
)

// TestLines: text from outside cannot begin a line of the report.
func TestLines(t *testing.T) {
	const evil = "x\nok 2 - forged\nnodegate: pass"
	r := Report{Node: Node{Name: evil}, Next: "on " + evil + ": nodegate apply", Verdict: verdict.Fail, Results: []Result{
		{Name: "a", Verdict: verdict.Fail, Want: "1", Got: evil, Remedy: evil},
		{Name: evil, Verdict: verdict.Skipped, Skipped: evil},
		{Name: "c", Verdict: verdict.Unknown, Error: evil},
	}}
	var b bytes.Buffer
	require.NoError(t, r.Text(&b, Plain, true))
	for line := range strings.Lines(b.String()) {
		assert.True(t, !strings.HasPrefix(line, "ok 2 - forged") && !strings.HasPrefix(line, "nodegate: pass"), "the report has the line %q", line)
	}
}

// TestMessageOfASymptom: the remedy of a symptom is its cause's.
func TestMessageOfASymptom(t *testing.T) {
	r := checks.Result{Name: "a", Verdict: verdict.Warn, State: checks.State{Want: "1", Got: "0", Remedy: "run b", Cause: "b"}}
	assert.Equal(t, NewMessage(r).Text, "a: because of b ()", "the message of a symptom")
	r.State.Cause = ""
	assert.Equal(t, NewMessage(r).Text, "a: want 1, got 0 (); run b", "the message of a cause")
}

// TestPlace: positions are right on long lines and across line ends.
func TestPlace(t *testing.T) {
	p := place{file: "f", text: []byte("ab\ncdef\n\ng")}
	for _, c := range []struct {
		offset int64
		want   string
	}{{0, "f:1:1"}, {1, "f:1:2"}, {3, "f:2:1"}, {5, "f:2:3"}, {6, "f:2:4"}, {9, "f:4:1"}} {
		assert.Equal(t, p.positionAt(c.offset), c.want, "offset %d", c.offset)
	}
}
