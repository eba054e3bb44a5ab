package report_test

import (
	"testing"
	"time"

	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/assert"
)

// TestLateAfterTheClockWasSet: a round in the future does not count as being on time.
func TestLateAfterTheClockWasSet(t *testing.T) {
	now := time.Now()
	w := report.Watching{Interval: time.Minute, LastRound: now.Add(time.Hour)}
	assert.ErrorContains(t, w.Late(now), "1h0m0s in the future", "a round in the future")
	w.LastRound = now.Add(time.Second)
	assert.NoError(t, w.Late(now), "a clock that is one second off")
}
