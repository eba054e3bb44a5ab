package watch

import (
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"nodegate/internal/host/hosttest"
)

// BenchmarkRecreated measures the time from the notification about a new link until it
// is set, while 500 veths come and go. `make bench` runs it in a network namespace.
func BenchmarkRecreated(b *testing.B) {
	hosttest.NeedRoot(b)
	links, err := netlink.LinkList()
	hosttest.Need(b, err == nil && len(links) == 1, "a network namespace of its own: go test -exec 'unshare --net'")
	took, asked := recreate(b, b.Loop, 500)
	for name, all := range map[string][]time.Duration{"setting": took, "question": asked} {
		slices.Sort(all)
		b.ReportMetric(float64(all[len(all)/2].Microseconds()), "median-us/"+name)
		b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-us/"+name)
		b.ReportMetric(float64(all[len(all)-1].Microseconds()), "slowest-us/"+name)
	}
}
