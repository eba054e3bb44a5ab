package report

import "nodegate/internal/verdict"

// ResultsBehind returns the results that a node's verdict rests on: those that have it, without those that follow from another one. Where what
// they follow from has another verdict, because it could not be told, it is all that have it: a node that fails is never without a reason.
func ResultsBehind(v verdict.Verdict, results []Result) []Result {
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
