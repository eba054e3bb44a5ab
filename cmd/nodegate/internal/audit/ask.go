package audit

import (
	"context"
	"slices"
	"time"

	"nodegate/internal/kube"
	"nodegate/internal/proxyrules"
	"nodegate/internal/verdict"
)

const (
	askLooks = 4
	askAgain = 2 * time.Second
)

// Ask asks kube-proxy itself. What it says of an update that waits is uncertain while it is at one long writing, which has the update, or
// is before it. Where it is at none, it is asked again: the writing may just have ended, and the other family's be about to begin.
func (n *Machine) Ask(ctx context.Context, from kube.ProxyPages, leftOut func(error)) kube.Proxy {
	from.Began = n.Presence.Began()
	for look := 1; ; look++ {
		var left []error
		writer := n.Writer()
		asked := kube.AskProxy(ctx, from, func(err error) { left = append(left, err) })
		if !writer.Long() {
			writer = n.Writer()
		}
		if !slices.ContainsFunc(asked.Findings, waits) || writer.Long() || look == askLooks || !pause(ctx) {
			for _, err := range left {
				leftOut(err)
			}
			switch {
			case writer.Long():
				doubt(asked.Findings, writer.Says())
			case look < askLooks: // nothing to doubt, or no time
				doubt(asked.Findings, ", when the time of the audit ended")
			}
			return asked
		}
	}
}

// waits reports whether a finding says that an update is not written.
func waits(f proxyrules.Finding) bool {
	return slices.Contains([]string{"kubeproxy.sync.never", "kubeproxy.sync.stuck", "kubeproxy.sync.unhealthy"}, f.Name)
}

func doubt(findings []proxyrules.Finding, why string) {
	for i := range findings {
		if f := &findings[i]; waits(*f) {
			f.Verdict, f.Remedy = verdict.Unknown, "audit again when it has written"
			f.Message += why
		}
	}
}

func pause(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(askAgain):
		return true
	}
}
