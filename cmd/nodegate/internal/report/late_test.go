package report_test

import (
	"strings"
	"testing"
	"time"

	"nodegate/cmd/nodegate/internal/report"
)

// TestLateAfterTheClockWasSet: a round in the future does not count as being on time.
func TestLateAfterTheClockWasSet(t *testing.T) {
	now := time.Now()
	w := report.Watching{Interval: time.Minute, LastRound: now.Add(time.Hour)}
	if err := w.Late(now); err == nil || !strings.Contains(err.Error(), "1h0m0s in the future") {
		t.Errorf("a round in the future: %v", err)
	}
	w.LastRound = now.Add(time.Second)
	if err := w.Late(now); err != nil {
		t.Errorf("a clock that is one second off: %v", err)
	}
}
