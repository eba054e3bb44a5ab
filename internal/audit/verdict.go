package audit

import (
	"slices"
	"time"

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

// longestWait bounds the time that a change may wait until the rules are compared with the API.
const longestWait = 2 * time.Minute

// Outdated reports whether the rules or the API have changed, and the last comparison is too old to show it.
func Outdated(p settle.Progress, now time.Time) bool {
	return !p.Waiting.IsZero() && now.Sub(p.Waiting) > longestWait
}

// Conclude returns the verdict of an audit by Follow, and the finding that causes it. Rules that were not read, not
// compared with the API, or compared too long ago, are unknown unless a finding shows that they are broken.
func Conclude(p settle.Progress, now time.Time) (verdict.Verdict, proxy.Finding) {
	worst, first := Worst(p.Findings)
	if worst != verdict.Fail && (p.Unread != nil || p.Unanswered != nil || Outdated(p, now)) {
		worst = verdict.Unknown
	}
	return worst, first
}
