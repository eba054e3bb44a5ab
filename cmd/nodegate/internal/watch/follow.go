package watch

import (
	"context"
	"os"
	"time"

	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/host/file"
	"nodegate/internal/kube"
)

// Follow publishes the file that another process's watch writes, as a condition of a Node, until the context ends. It reads the file at
// every interval, and calls set each time.
func Follow(ctx context.Context, name, kind, node string, every time.Duration, set func(kube.Publication)) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	var read os.FileInfo // the file that was read last
	var d report.Watch
	var seen time.Time
	for {
		// The writer replaces the file. A file that cannot be read or decoded counts as a watch that is late.
		info, err := os.Stat(name)
		if err != nil || read == nil || !os.SameFile(info, read) || !info.ModTime().Equal(read.ModTime()) {
			read, d, seen = info, report.Watch{}, time.Now()
			if text, err := file.Read(name, report.MaxFile); err == nil {
				d, _ = report.DecodeWatch(text)
			}
		}
		// Use the monotonic clock: setting the wall clock must not make watch late.
		now := seen.Add(time.Since(seen))
		condition := Condition(kind, d, now)
		condition.Checked = d.LastRound
		set(kube.Publication{Condition: condition, Node: node})
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
