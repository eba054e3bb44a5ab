package report

import "nodegate/internal/verdict"

// ResultsBehind returns the results that cause a node's verdict: those with the same verdict that are not symptoms of another result.
// If all of them are symptoms, because their cause has a different verdict such as unknown, it returns all of them, so that a failing
// node always has a reason.
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
