package report

import "nodegate/checks"

// Verdict is the outcome of a check or of a node, as it is spelled in JSON.
type Verdict string

// The verdicts of a check. A node's is Pass, Fail or Unknown.
const (
	Pass    Verdict = "pass"
	Warn    Verdict = "warn" // fails, with severity warn
	Fail    Verdict = "fail"
	Unknown Verdict = "unknown" // never passes
	Skip    Verdict = "skip"    // does not apply here
)

// Verdicts returns all verdicts of a check, the worst first.
func Verdicts() []Verdict { return []Verdict{Fail, Unknown, Warn, Pass, Skip} }

func verdictOf(v checks.Verdict) Verdict { return Verdict(v.String()) }

// Word returns the verdict as people read it.
func (v Verdict) Word() string {
	if v == Skip {
		return "skipped"
	}
	return string(v)
}

// Fine reports whether no person has to look at the result.
func (v Verdict) Fine() bool { return v == Pass || v == Skip }

// Behind returns the results that a node's verdict rests on: those that have it, without those that follow from another one. Where what
// they follow from has another verdict, because it could not be told, it is all that have it: a node that fails is never without a reason.
func (v Verdict) Behind(results []Result) []Result {
	var causes, all []Result
	for _, r := range results {
		if r.Verdict != v {
			continue
		}
		if all = append(all, r); r.Because == "" {
			causes = append(causes, r)
		}
	}
	if causes == nil {
		return all
	}
	return causes
}
