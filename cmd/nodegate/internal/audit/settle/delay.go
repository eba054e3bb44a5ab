package settle

import (
	"slices"
	"time"

	"nodegate/internal/proxyrules"
)

// Delays is how long changes of the API took to be in the rules of this node, as seen by reading the rules: each is at most
// so long. A change that the rules were read late after, because reading costs much, says nothing and is not counted.
type Delays struct {
	Buckets [8]int // by DelayBounds, and one for what took longer
	Sum     time.Duration
	Count   int
}

// DelayBounds returns the upper bounds of the buckets.
func DelayBounds() []time.Duration {
	const s = time.Second
	return []time.Duration{s, 2 * s, 5 * s, 10 * s, 15 * s, 30 * s, 60 * s}
}

// late is the age of a change at which a first reading says nothing of how soon it was written.
const late = 5 * time.Second

// add counts the changes that a round saw arrive.
func (d *Delays) add(changed map[string]time.Time, out Outcome, began, first time.Time) {
	in := map[string]time.Time{} // when each was seen to agree
	for i := range out.Report.Services {
		in[proxyrules.ServicePort{Name: out.Report.Services[i].Name}.Service()] = first
	}
	for _, c := range out.Converged {
		in[proxyrules.ServicePort{Name: c.Service}.Service()] = began.Add(time.Duration(c.After * float64(time.Second)))
	}
	for i := range out.Report.Findings {
		delete(in, proxyrules.PortOf(&out.Report.Findings[i]).Service())
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
