package watch

import (
	"context"
	"os"
	"time"

	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/host/file"
	"nodegate/internal/kube"
)

// Follow passes on what another process's watch writes into a file, as a condition of a Node, until the context ends. It looks every
// so often; set is called each time.
func Follow(ctx context.Context, name, kind, node string, every time.Duration, set func(kube.Publication)) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	var read os.FileInfo // what last was read from
	var d report.Watch
	var seen time.Time
	for {
		// Whoever writes it replaces it. One that cannot be read, or decoded, is that of no watch, which is late.
		info, err := os.Stat(name)
		if err != nil || read == nil || !os.SameFile(info, read) || !info.ModTime().Equal(read.ModTime()) {
			read, d, seen = info, report.Watch{}, time.Now()
			if text, err := file.Read(name, report.MaxFile); err == nil {
				d, _ = report.DecodeWatch(text)
			}
		}
		// Not by the clock, which somebody may set: watch is late for that no more than before.
		now := seen.Add(time.Since(seen))
		set(kube.Publication{Condition: Condition(kind, d, now), Node: node})
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
