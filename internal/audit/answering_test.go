package audit

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"nodegate/internal/audit/proxy"
	"nodegate/internal/verdict"
)

// refusing is a server that refuses connections.
type refusing struct{}

func (refusing) RoundTrip(*http.Request) (*http.Response, error) { return refused() }

// failWithout makes the API server refuse everybody for a time, after which an endpoint has changed. kube-proxy fails for some time more.
func (f *followed) failWithout(away, later time.Duration) {
	f.away = true
	f.ends <- struct{}{}
	for end := time.Now().Add(away + later); time.Now().Before(end); time.Sleep(10 * time.Second) {
		f.refused++
		if f.away = time.Until(end) > later; !f.away {
			f.moved = true
		}
	}
}

// TestFollowOutage: kube-proxy is not accused of what it shares with every client of the API server, or of the clock.
func TestFollowOutage(t *testing.T) {
	runFollowed(t, map[string]func(f *followed){
		"the API server is away": func(f *followed) {
			f.failWithout(5*time.Minute, 50*time.Second)
			f.answered++
			f.moved = false // kube-proxy has written the change
			select {
			case f.events <- proxy.Relisted(f.list()):
			case <-time.After(time.Minute): // the next list has it
			}
			time.Sleep(5 * time.Minute)
			f.want("all is well again", verdict.Pass)
			if slices.Contains(f.seen, "fail") || !slices.Contains(f.seen, "unknown") {
				f.t.Errorf("verdicts: %v", f.seen)
			}
		},
		"the API server is away, and kube-proxy never reconnects": func(f *followed) {
			f.failWithout(5*time.Minute, 10*time.Minute)
			f.want("long after the return", verdict.Fail, "watch.failing")
		},
		"the clock is set": func(f *followed) {
			time.Sleep(6 * time.Minute)
			f.offset = time.Hour
			f.written, f.queued = f.written.Add(-time.Hour), f.queued.Add(-time.Hour)
			f.move(true)
			f.move(false)
			time.Sleep(time.Minute)
			f.want("times of the clock before", verdict.Pass)
			time.Sleep(time.Hour + 2*time.Minute)
			f.move(true)
			f.move(false)
			time.Sleep(time.Minute)
			f.want("not written for an hour since", verdict.Fail, "sync.dead")
		},
	})
}
