package checks

import (
	"context"
	"fmt"
	"time"

	"nodegate/internal/host"
)

// pauseTime is the pause between two reads of counters: long enough to see a continuing loss, short
// enough for a check.
const pauseTime = 100 * time.Millisecond

// Pause waits between two reads of counters: 100 ms, or until ctx ends. It returns the host for the second read.
func Pause(ctx context.Context, h *host.Host) (*host.Host, error) {
	return h.Again(), sleepFor(ctx, pauseTime)
}

func sleepFor(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting between two reads: %w", ctx.Err())
	}
}
