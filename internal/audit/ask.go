package audit

import (
	"context"
	"slices"
	"time"

	"nodegate/internal/audit/kubeproxy"
	"nodegate/internal/audit/proxy"
	"nodegate/internal/verdict"
)

const (
	askLooks = 4
	askAgain = 2 * time.Second
	// firstSync is the time until a kube-proxy without any sync counts as stuck, like a waiting update.
	firstSync = time.Minute
)

// Ask queries kube-proxy itself. A report of a waiting update is uncertain during a long sync, because that sync or the next one may
// include the update. If no sync runs, Ask queries again: a sync may just have ended and the sync of the other family may be about to
// begin. A kube-proxy that has just started may still list the API before its first sync.
func (n *Machine) Ask(ctx context.Context, leftOut func(error)) kubeproxy.Answers {
	began := n.Presence.Began()
	for look := 1; ; look++ {
		var left []error
		writer := n.Writer()
		asked := n.Presence.Ask(ctx, func(err error) { left = append(left, err) })
		if !writer.Long() {
			writer = n.Writer()
		}
		if !slices.ContainsFunc(asked.Findings, isWaiting) || writer.Long() || look == askLooks || !waitToAsk(ctx) {
			for _, err := range left {
				leftOut(err)
			}
			switch {
			case writer.Long():
				markUncertain(asked.Findings, writer.Describe())
			case look < askLooks: // nothing is uncertain, or no time is left
				markUncertain(asked.Findings, "; the audit timed out")
			case time.Since(began) < firstSync:
				markUncertain(asked.Findings, "; kube-proxy started less than a minute ago")
			}
			return asked
		}
	}
}

// isWaiting reports whether a finding is about an update that kube-proxy has not written.
func isWaiting(f proxy.Finding) bool {
	return slices.Contains([]string{"kubeproxy.sync.never", "kubeproxy.sync.stuck", "kubeproxy.sync.unhealthy"}, f.Name)
}

func markUncertain(findings []proxy.Finding, why string) {
	for i := range findings {
		if f := &findings[i]; isWaiting(*f) {
			f.Verdict, f.Remedy = verdict.Unknown, "run the audit again after kube-proxy's sync"
			f.Message += why
		}
	}
}

func waitToAsk(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(askAgain):
		return true
	}
}
