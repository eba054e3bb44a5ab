package audit

import (
	"context"
	"slices"
	"time"

	"nodegate/checks"
	"nodegate/internal/kube"
	"nodegate/internal/proxyrules"
	"nodegate/internal/settle"
)

const (
	askLooks = 4
	askAgain = 2 * time.Second
)

// Ask asks kube-proxy itself. What it says of an update that waits is uncertain while it is at one long writing, which has the update, or
// is before it. Where it is at none, it is asked again: the writing may just have ended, and the other family's be about to begin.
func (n *Node) Ask(ctx context.Context, from kube.ProxyPages, leftOut func(error)) kube.Proxy {
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
			if writer.Long() || ctx.Err() != nil {
				doubt(asked.Findings, writer)
			}
			return asked
		}
	}
}

// waits reports whether a finding says that an update is not written.
func waits(f proxyrules.Finding) bool {
	return slices.Contains([]string{"kubeproxy.sync.never", "kubeproxy.sync.stuck", "kubeproxy.sync.unhealthy"}, f.Name)
}

func doubt(findings []proxyrules.Finding, writer settle.Writer) {
	for i := range findings {
		if f := &findings[i]; waits(*f) {
			f.Verdict, f.Remedy = checks.Unknown, "audit again when it has written"
			f.Message += writer.Says()
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
