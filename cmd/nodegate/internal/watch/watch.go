// Package watch keeps a running node as its policy asks: it sets up the links that
// appear after the gate has opened, inspects everything again at every interval,
// corrects or reports drift, and names the program that keeps causing it.
package watch

import (
	"context"
	"math/rand/v2"
	"os"
	"time"

	"nodegate/checks"
	"nodegate/checks/setting"
	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/host"
	"nodegate/internal/verdict"
	"nodegate/policy"
)

// Watcher is the loop. Its fields are set before Run; the functions are called by
// the goroutine of Run, and must not block.
type Watcher struct {
	Host     *host.Host // corrects links and drift, in the loop
	Observer *host.Host // inspects, in the rounds beside the loop: it shares nothing with Host
	Every    time.Duration
	// Policy evaluates the policy again, facts included: some of them (the CNI,
	// kube-proxy's mode) are known only some time after boot. With reread it reads
	// the files too. Beside an error is the last good policy, or nil where that
	// cannot be evaluated either. The rounds call it, never two at a time.
	Policy func(reread bool) (*policy.Policy, error)
	// Audit returns the verdict on kube-proxy's rules, as the policy asks for one. The rounds call it, never two at a time.
	Audit      func(*policy.Policy) []checks.Check
	Auditing   func() *report.Auditing // what is known of the audit, nil where there is none
	BreakGlass func() string           // how somebody switched the gate off, "" where nobody did
	Reread     <-chan os.Signal        // a request to read the files again
	Again      <-chan struct{}         // a request for a round

	AliveEvery time.Duration
	Alive      func() // the loop makes progress; called every AliveEvery, never where that is 0

	Ready     func(Status)               // after the first round
	Publish   func(Status)               // something has changed; called at most once a second
	Corrected func(report.Correction)    // something was corrected
	Wrote     func(report.AppliedChange) // what was written, but for links that came after the beginning: it goes with them
	Changed   func(checks.Result)        // a requirement began to fail or to be unknown, could not be corrected, or passes again
	Fighting  func(report.Fight, bool)   // a fight began, or (true) is over
	Trouble   func(string)               // anything else that a person should know

	record   record
	policy   *policy.Policy
	links    []setting.LinkRequirement
	fights   fights
	known    map[int]*knownLink
	present  map[int]bool // the links that were there at the beginning, nil before it
	verdicts map[string]verdict.Verdict
	glanced  map[string]string // the parameters when the last round began
	began    time.Time
	clock    time.Duration // how far the clock had been set when the last round began
	dirty    bool
}

const (
	choreDelay   = time.Second // what many events cause is done once, this much later
	glanceEvery  = 2 * time.Second
	roundTime    = 20 * time.Second
	actionTime   = 10 * time.Second // for one correction; a modprobe that hangs must not hang the loop
	resubscribe  = time.Second
	eventsQueued = 4096
)

// Run watches until ctx ends, and returns nil then. It returns an error where the
// policy cannot be read at the start: watch would not know what to do.
func (w *Watcher) Run(ctx context.Context) error {
	p, err := w.Policy(false)
	if err != nil {
		return err
	}
	w.use(p)
	w.fights, w.known, w.verdicts = fights{}, map[int]*knownLink{}, map[string]verdict.Verdict{}
	w.began = time.Now()
	w.record.state = Status{
		Watching: report.Watching{Since: w.began, Interval: w.Every, Corrected: map[string]int{}}, Policy: p,
	}

	events, lost, subscribed := make(chan host.LinkEvent, eventsQueued), make(chan error), make(chan struct{})
	go subscribe(ctx, w.Host.Links, events, subscribed, lost)

	round := &round{host: w.Observer, policy: w.Policy, audit: w.Audit, done: make(chan found, 1)}
	next := time.NewTimer(time.Hour)
	next.Stop()
	chores := time.NewTimer(time.Hour)
	chores.Stop()
	due := false // the chores are
	alive, stop := ticks(w.AliveEvery)
	defer stop()
	defer next.Stop()
	defer chores.Stop()
	first := true   // the notices begin for the first time
	routed := false // a link changed that may carry a default route
	early := false  // a round is wanted before the next one is due
	glances, rest := ticks(glanceEvery)
	defer rest()
	for {
		select {
		case <-ctx.Done():
			round.wait()
			return nil
		case e := <-events:
			routed = w.event(ctx, e) || routed
			early = early || w.concerns(e)
		case <-glances:
			early = w.glance() || early
		case <-subscribed:
			w.resync(ctx, first)
			if first {
				// The first round ends only when no notice can be missed any more:
				// this is what ready means.
				first = false
				next.Reset(0)
			}
		case err := <-lost:
			w.change(func(s *Status) { s.Resyncs++ })
			w.dirty = true
			if first {
				next.Reset(0) // without notices only the rounds find anything
			}
			w.trouble("link notices were missed, every link is looked at again: " + err.Error())
		case <-w.Reread:
			w.begin(ctx, round, true)
		case <-w.Again:
			w.begin(ctx, round, false)
		case <-next.C:
			w.begin(ctx, round, false)
			next.Reset(jitter(w.Every))
		case f := <-round.done:
			if !round.repeats(f) {
				w.finish(ctx, f)
			}
			round.end(ctx, w.policy)
		case <-alive:
			// A round that ignores its deadline hangs in the kernel: then systemd's
			// watchdog ends this process.
			if !round.hangs() {
				w.Alive()
			}
		case <-chores.C:
			due = false
			if routed {
				w.reconcileAll(ctx, w.routed())
				routed = false
			}
			if early && round.affordable(time.Now()) {
				early = false
				w.begin(ctx, round, false)
			}
			if w.dirty {
				w.dirty = false
				w.publish()
			}
		}
		if (routed || early || w.dirty) && !due {
			due = true
			chores.Reset(choreDelay)
		}
	}
}

// ticks returns a ticker, or one that never ticks where d is 0.
func ticks(d time.Duration) (<-chan time.Time, func()) {
	if d == 0 {
		return nil, func() {}
	}
	t := time.NewTicker(d)
	return t.C, t.Stop
}

// subscribe receives notices about links until ctx ends, and subscribes again
// whenever that fails. After each beginning every link must be inspected: what came
// before is unknown.
func subscribe(ctx context.Context, links host.Links, events chan<- host.LinkEvent, subscribed chan<- struct{}, lost chan<- error) {
	for ctx.Err() == nil {
		err := links.Watch(ctx, func() { send(ctx, subscribed, struct{}{}) }, events)
		send(ctx, lost, err)
		select {
		case <-ctx.Done():
		case <-time.After(resubscribe):
		}
	}
}

func send[T any](ctx context.Context, c chan<- T, v T) {
	select {
	case c <- v:
	case <-ctx.Done():
	}
}

// jitter spreads the rounds of a fleet that was started at once: a tenth earlier to
// a tenth later.
func jitter(d time.Duration) time.Duration {
	return d - d/10 + rand.N(d/5+1)
}

func (w *Watcher) publish() {
	if w.Publish != nil {
		w.Publish(w.State())
	}
}

func (w *Watcher) use(p *policy.Policy) {
	w.policy = p
	w.links = nil
	for _, l := range setting.LinkRequirements(p) {
		if l.Metadata().Drift != policy.Ignore {
			w.links = append(w.links, l)
		}
	}
}

// take puts the policy of a round into use. It reports one that could not be read
// once; the last good one stays in use, with the facts as they are now.
func (w *Watcher) take(ctx context.Context, f found) {
	said := ""
	former, reread := w.policy, f.reread && f.err == nil
	w.use(f.policy)
	w.leaveThere(ctx, former, reread)
	if f.err == nil {
		if reread {
			for _, k := range w.known {
				clear(k.matches) // a requirement of the same name may ask for other links now
			}
			w.trouble("the policy was read again: " + report.Count(len(f.policy.Files), "file"))
		}
	} else if said = f.err.Error(); said != w.State().PolicyError {
		w.trouble("the policy cannot be read, the last good one stays in use: " + said)
	}
	w.change(func(s *Status) { s.PolicyError, s.Policy = said, w.policy })
}

func (w *Watcher) wrote(c report.AppliedChange) {
	if w.Wrote != nil {
		w.Wrote(c)
	}
}

func (w *Watcher) trouble(line string) {
	if w.Trouble != nil {
		w.Trouble(line)
	}
}
