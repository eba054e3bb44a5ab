package audit

import (
	"slices"

	"nodegate/internal/audit/proxy"
	"nodegate/internal/audit/settle"
	"nodegate/internal/verdict"
)

// Worst returns the worst verdict of findings, which is pass without any, and the first finding with it.
func Worst(found []proxy.Finding) (worst verdict.Verdict, first proxy.Finding) {
	worst = verdict.Pass
	for _, f := range found {
		worst = verdict.Worse(worst, f.Verdict)
	}
	if i := slices.IndexFunc(found, func(f proxy.Finding) bool { return f.Verdict == worst }); i >= 0 {
		first = found[i]
	}
	return worst, first
}

// Conclude returns the verdict of an audit by Follow, and the finding that causes it. Rules that were not read, or not
// compared with the API, are unknown unless a finding shows that they are broken.
func Conclude(p settle.Progress) (verdict.Verdict, proxy.Finding) {
	worst, first := Worst(p.Findings)
	if worst != verdict.Fail && (p.Unread != nil || p.Unanswered != nil) {
		worst = verdict.Unknown
	}
	return worst, first
}
