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

// If the policy publishes a condition, the regular rounds are too far apart. Watch then polls the values that are cheap to read, and
// starts the next round early if one has changed.

// publishesCondition reports whether the policy publishes a condition.
func (w *Watcher) publishesCondition() bool { return w.policy.Publish.Condition != "" }

// beginRound starts a round, and records the values that glanceChanged compares.
func (w *Watcher) beginRound(ctx context.Context, r *round, reread bool) {
	w.glanced, w.clock = w.readSysctls(), host.ClockOffset()
	r.begin(ctx, w.policy, reread)
}

// glanceChanged reports whether a sysctl of the policy has changed since the last round began, or the clock was set: by the new clock
// the last round may be too old, or in the future.
func (w *Watcher) glanceChanged() bool {
	return !maps.Equal(w.glanced, w.readSysctls()) || (host.ClockOffset()-w.clock).Abs() > time.Second
}

// readSysctls reads the sysctls of the policy if the policy publishes a condition.
func (w *Watcher) readSysctls() map[string]string {
	now := map[string]string{}
	for _, s := range slices.Concat(w.policy.Sysctls, w.policy.Sysfs) {
		if !w.publishesCondition() || s.Off || s.Drift == policy.Ignore {
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

// mayConcern reports whether a notification is about a link that a requirement could match.
func (w *Watcher) mayConcern(e host.LinkEvent) bool {
	return w.publishesCondition() && slices.ContainsFunc(w.links, func(r setting.Link) bool { return r.MayMatch(e.Link) })
}

// affordable reports whether a round can start now such that rounds take at most a quarter of the time.
func (r *round) affordable(now time.Time) bool {
	return r.began.IsZero() && now.Sub(r.ended) >= 3*r.took
}
