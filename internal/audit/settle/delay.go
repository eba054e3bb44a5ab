package settle

import (
	"slices"
	"time"

	"nodegate/internal/audit/proxy"
)

// Delays is a histogram of the time from a change in the API to this node's rules, as upper limits from readings of the rules. A change
// is not counted if the rules were read late because reading them is expensive.
type Delays struct {
	Buckets [8]int // by DelayBounds, plus one for longer times
	Sum     time.Duration
	Count   int
}

// DelayBounds returns the upper bounds of the buckets.
func DelayBounds() []time.Duration {
	const s = time.Second
	return []time.Duration{s, 2 * s, 5 * s, 10 * s, 15 * s, 30 * s, 60 * s}
}

// late is the maximum age of a change at the first reading. The reading of an older change shows nothing about its delay.
const late = 5 * time.Second

// add counts the changes that arrived before a round.
func (d *Delays) add(changed map[string]time.Time, out Outcome, began, first time.Time) {
	in := map[string]time.Time{} // when each Service was first seen to agree
	for i := range out.Report.Services {
		in[proxy.ServicePort{Name: out.Report.Services[i].Name}.Service()] = first
	}
	for _, c := range out.Converged {
		in[proxy.ServicePort{Name: c.Service}.Service()] = began.Add(time.Duration(c.After * float64(time.Second)))
	}
	for i := range out.Report.Findings {
		delete(in, proxy.PortOf(&out.Report.Findings[i]).Service())
	}
	for service, at := range changed {
		seen, ok := in[service]
		if !ok || first.Sub(at) > late {
			continue
		}
		took := seen.Sub(at)
		bounds := DelayBounds()
		i, _ := slices.BinarySearch(bounds, took)
		d.Buckets[i]++
		d.Sum += took
		d.Count++
	}
}
