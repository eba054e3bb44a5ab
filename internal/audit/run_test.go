package audit

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"nodegate/internal/require"
	"nodegate/internal/verdict"
)

// TestRunDies checks a kube-proxy that ends between the readings of its rules and of its pages: that it is gone is not known
// for long enough to be a failure.
func TestRunDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFollowed(t)
		n := f.node()
		page, asked := n.Presence.Get, 0
		n.Presence.Get = func(ctx context.Context, address string) ([]byte, int, error) {
			if asked++; asked == 2 {
				f.dead = true
				delete(f.machine.Files, "/proc/7/cmdline")
				delete(f.machine.Files, "/proc/7/stat")
			}
			return page(ctx, address)
		}
		got, err := n.run(t.Context(), f, Request{Once: true, Skipped: func(error) {}})
		require.NoError(t, err)
		f.kept.Findings = got.Report.Findings
		f.want("it has just ended", verdict.Unknown, "sync.unreadable")
	})
}

// TestRun checks that one audit of a minute has the time to query a kube-proxy whose sync hangs, although
// its rules are still excused then.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFollowed(t)
		time.Sleep(2 * time.Minute)
		f.queued, f.refuses, f.moved = time.Now().Add(-90*time.Second), true, true
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		got, err := f.node().run(ctx, f, Request{Skipped: func(err error) { t.Error(err) }})
		require.NoError(t, err)
		f.kept.Findings = got.Report.Findings
		f.want("one audit", verdict.Fail, "sync.stuck", "sync.unhealthy")
		if !got.Covered.Health || !got.Covered.Endpoints {
			t.Errorf("covered: %+v", got.Covered)
		}
	})
}
