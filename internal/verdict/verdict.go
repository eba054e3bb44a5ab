// Package verdict defines the verdict of checks, findings, reports and nodes, and its five words.
package verdict

import "fmt"

// Verdict is the outcome of a check or of a node. The zero value is Unknown: it never passes.
type Verdict int

// The verdicts. A node's verdict is Pass, Fail or Unknown.
const (
	Unknown Verdict = iota // could not determine
	Pass
	Warn    // does not pass, with severity warn
	Fail    // does not pass
	Skipped // does not apply here
)

// All returns all verdicts of a check, worst first.
func All() []Verdict { return []Verdict{Fail, Unknown, Warn, Pass, Skipped} }

// String returns the word that JSON, text, metrics and documents use.
func (v Verdict) String() string {
	return [...]string{"unknown", "pass", "warn", "fail", "skipped"}[v]
}

// MarshalText returns the word.
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText parses a word that MarshalText has written, and returns an error for any other
// word.
func (v *Verdict) UnmarshalText(text []byte) error {
	for _, known := range All() {
		if known.String() == string(text) {
			*v = known
			return nil
		}
	}
	return fmt.Errorf("unknown verdict %.60q; verdicts: pass, warn, fail, unknown, skipped", text)
}

// Fine reports whether no operator needs to look at the result.
func (v Verdict) Fine() bool { return v == Pass || v == Skipped }

// Worse returns the worse of two verdicts, in the order fail, unknown, warn, others.
func Worse(a, b Verdict) Verdict {
	for _, v := range All() {
		if a == v || b == v {
			return v
		}
	}
	return Unknown
}
