package report

import (
	"fmt"

	"nodegate/checks"
	"nodegate/internal/verdict"
	"nodegate/policy"
)

// Message is a result in one line, for the console and the journal, and the
// fields that the journal keeps with it.
type Message struct {
	Text   string
	Fields map[string]string
}

// NewMessage returns the fault, the requirement's place in the policy, and the remedy.
func NewMessage(res checks.Result) Message {
	r := NewResult(res)
	m := Message{fmt.Sprintf("%s: %s (%s)", r.Name, r.summary(), r.Source), map[string]string{
		"NODEGATE_CHECK": r.Name, "NODEGATE_VERDICT": r.Verdict.String(), "NODEGATE_WANT": r.Want,
		"NODEGATE_GOT": r.Got, "NODEGATE_SOURCE": r.Source, "NODEGATE_REMEDY": r.Remedy,
	}}
	if r.Remedy != "" && r.Because == "" { // the remedy of a symptom is its cause's
		m.Text += "; " + r.Remedy
	}
	return m
}

// Blocking returns a message for each cause that keeps a unit held.
func Blocking(r checks.Outcome, call Call) []Message {
	var all []Message
	for _, res := range r.Results {
		if res.Metadata.Severity == policy.Block && res.Verdict != verdict.Pass && res.Verdict != verdict.Skipped && !res.IsSymptom() {
			res.State.Remedy = call.repeat(res.State.Remedy)
			all = append(all, NewMessage(res))
		}
	}
	return all
}
