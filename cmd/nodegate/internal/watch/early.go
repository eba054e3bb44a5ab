package watch

import (
	"context"
	"maps"
	"slices"
	"time"

	"nodegate/checks/setting"
	"nodegate/internal/host"
	"nodegate/policy"
)

// Where the cluster is to hear of a change, the rounds are too far apart. A look at what is cheap to read makes the next one early.

// publishes reports whether the cluster hears what watch finds.
func (w *Watcher) publishes() bool { return w.policy.Publish.Condition != "" }

// begin begins a round.
func (w *Watcher) begin(ctx context.Context, r *round, reread bool) {
	w.glanced, w.clock = w.parameters(), w.ahead()
	r.begin(ctx, w.policy, reread)
}

// glance reports whether a parameter that the policy asks for has changed since the last round began, or somebody set the clock: by the
// new one the last round is too old, or in the future.
func (w *Watcher) glance() bool {
	return !maps.Equal(w.glanced, w.parameters()) || (w.ahead()-w.clock).Abs() > time.Second
}

// ahead returns by how much the clock was set since watch began: what went by on it, less what went by on the one that nobody sets.
func (w *Watcher) ahead() time.Duration {
	return time.Now().Round(0).Sub(w.began.Round(0)) - time.Since(w.began)
}

// parameters reads the parameters that the policy asks for, where the cluster hears of them.
func (w *Watcher) parameters() map[string]string {
	now := map[string]string{}
	for _, s := range w.policy.Sysctls {
		if !w.publishes() || s.Off || s.Drift == policy.Ignore {
			continue
		}
		value, err := w.Host.ReadSysctl(string(s.Key))
		if err != nil {
			value = err.Error()
		}
		now[string(s.Key)] = value
	}
	return now
}

// concerns reports whether a notice is about a link that a requirement could match.
func (w *Watcher) concerns(e host.LinkEvent) bool {
	return w.publishes() && slices.ContainsFunc(w.links, func(r setting.LinkRequirement) bool { return r.MayMatch(e.Link) })
}

// affordable reports whether a round now would leave the rounds at most a quarter of the time.
func (r *round) affordable(now time.Time) bool {
	return r.began.IsZero() && now.Sub(r.ended) >= 3*r.took
}
