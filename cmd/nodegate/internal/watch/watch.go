// Package watch keeps a running node within its policy. It sets up the links that
// appear after the gate has released kubelet, inspects everything at every interval,
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

// Watcher is the loop. Set its fields before Run. The goroutine of Run calls the
// functions, which must not block.
type Watcher struct {
	Host     *host.Host // corrects links and drift, in the loop
	Observer *host.Host // inspects, in the rounds parallel to the loop; it shares nothing with Host
	Every    time.Duration
	// Policy re-evaluates the policy with the current facts: some of them (the CNI,
	// kube-proxy's mode) become known only some time after boot. With reread it also
	// reads the files. With an error it returns the last good policy, or nil if that
	// cannot be evaluated either. The rounds call it, never concurrently.
	Policy func(reread bool) (*policy.Policy, error)
	// Audit returns the checks of kube-proxy's rules that the policy requires. The rounds call it, never concurrently.
	Audit      func(*policy.Policy) []checks.Check
	Auditing   func() *report.Auditing // the progress of the audit, nil without an audit
	BreakGlass func() string           // the break-glass in force, "" if none
	Passed     func() time.Time        // when the gate last passed; nil: never
	Reread     <-chan os.Signal        // a request to reread the files
	Again      <-chan struct{}         // a request for a round

	AliveEvery time.Duration
	Alive      func() // reports that the loop makes progress; called every AliveEvery, never if that is 0

	Ready     func(Status)               // called after the first round
	Publish   func(Status)               // called after a change, at most once a second
	Corrected func(report.Correction)    // called after a correction
	Wrote     func(report.AppliedChange) // called after a write, except for links that appeared later: the change disappears with the link
	Changed   func(checks.Result)        // called if a requirement starts to fail or to be unknown, cannot be corrected, or passes again
	Fighting  func(report.Fight, bool)   // called when a fight begins or (true) is over
	Trouble   func(string)               // called with any other message for the operator

	record   record
	policy   *policy.Policy
	links    []setting.Link
	fights   fights
	known    map[int]*knownLink
	present  map[int]bool // the links that existed at the start, nil before the first list
	verdicts map[string]verdict.Verdict
	late     bool // the last round did not reach every check in time
	reached  map[string]reached
	passed   time.Time         // when the gate last passed
	glanced  map[string]string // the sysctls at the start of the last round
	clock    time.Duration     // the clock offset at the start of the last round
	dirty    bool
}

const (
	choreDelay   = time.Second // chores run once for many events, after this delay
	glanceEvery  = 2 * time.Second
	roundTime    = 20 * time.Second
	actionTime   = 10 * time.Second // bounds one correction; a modprobe that hangs must not hang the loop
	resubscribe  = time.Second
	eventsQueued = 4096
)

// Run watches until ctx ends, and then returns nil. It returns an error if the policy
// cannot be read at the start: watch cannot work without a policy.
func (w *Watcher) Run(ctx context.Context) error {
	p, err := w.Policy(false)
	if err != nil {
		return err
	}
	w.setPolicy(p)
	if w.Passed == nil {
		w.Passed = func() time.Time { return time.Time{} }
	}
	w.passed = w.Passed()
	w.fights, w.known, w.verdicts = fights{}, map[int]*knownLink{}, map[string]verdict.Verdict{}
	w.record.state = Status{
		Watching: report.Watching{Since: time.Now(), Interval: w.Every, Corrected: map[string]int{}}, Policy: p,
	}

	events, lost, subscribed := make(chan host.LinkEvent, eventsQueued), make(chan error), make(chan struct{})
	go subscribe(ctx, w.Host.Links, events, subscribed, lost)
	l := loop{Watcher: w, next: stoppedTimer(), chores: stoppedTimer(), first: true}
	l.round = &round{host: w.Observer, policy: w.Policy, audit: w.Audit, passed: w.Passed, done: make(chan found, 1)}
	alive, glances := time.Tick(w.AliveEvery), time.Tick(glanceEvery) // the first is nil, and never ticks, for 0
	for {
		select {
		case <-ctx.Done():
			l.round.waitForEnd()
			return nil
		case e := <-events:
			l.routed = w.handleEvent(ctx, e) || l.routed
			l.early = l.early || w.mayConcern(e)
		case <-glances:
			l.glance(ctx)
		case <-subscribed:
			l.resync(ctx)
		case err := <-lost:
			l.recordLost(err)
		case <-w.Reread:
			w.beginRound(ctx, l.round, true)
		case <-w.Again:
			w.beginRound(ctx, l.round, false)
		case <-l.next.C:
			w.beginRound(ctx, l.round, false)
			l.next.Reset(jitter(w.Every))
		case f := <-l.round.done:
			if !l.round.mustRepeat(f) {
				w.finishRound(ctx, f)
			}
			l.round.end(ctx, w.policy)
		case <-alive:
			if !l.round.isHanging() { // in the kernel, past its deadline: systemd's watchdog ends this process
				w.Alive()
			}
		case <-l.chores.C:
			l.doChores(ctx)
		}
		if (l.routed || l.early || w.dirty) && !l.due {
			l.due = true
			l.chores.Reset(choreDelay)
		}
	}
}

// loop is the state of Run besides the Watcher's.
type loop struct {
	*Watcher
	round        *round
	next, chores *time.Timer
	due          bool // chores are scheduled
	first        bool // the notifications have not started yet
	routed       bool // a link that may carry a default route has changed
	early        bool // a round is needed before the next one is due
}

func stoppedTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// glance looks for changes that no notification reports.
func (l *loop) glance(ctx context.Context) {
	l.early = l.glanceChanged() || l.early
	if passed := l.Passed(); !passed.Equal(l.passed) { // kubelet's unit becomes active
		l.passed = passed
		l.beginRound(ctx, l.round, false)
	}
}

// resync inspects all links after a subscription. Watch is ready after the first round, which starts with the first subscription, when no
// notification can be missed any more.
func (l *loop) resync(ctx context.Context) {
	l.Watcher.resync(ctx, l.first)
	if l.first {
		l.first = false
		l.next.Reset(0)
	}
}

// recordLost records that notifications were missed. Without any, only the rounds find changes.
func (l *loop) recordLost(err error) {
	l.updateStatus(func(s *Status) { s.Resyncs++ })
	l.dirty = true
	if l.first {
		l.next.Reset(0)
	}
	l.reportTrouble("missed link notifications, inspecting all links again: " + err.Error())
}

// doChores does once what several events have asked for.
func (l *loop) doChores(ctx context.Context) {
	l.due = false
	if l.routed {
		l.reconcileAll(ctx, l.routedLinks(), true)
		l.routed = false
	}
	if l.early && l.round.affordable(time.Now()) {
		l.early = false
		l.beginRound(ctx, l.round, false)
	}
	if l.dirty {
		l.dirty = false
		l.publish()
	}
}

// subscribe receives notifications about links until ctx ends, and subscribes again
// after a failure. After each subscription every link must be inspected, because earlier
// notifications were missed.
func subscribe(ctx context.Context, links host.Links, events chan<- host.LinkEvent, subscribed chan<- struct{}, lost chan<- error) {
	for ctx.Err() == nil {
		err := links.Watch(ctx, func() { sendUntilDone(ctx, subscribed, struct{}{}) }, events)
		sendUntilDone(ctx, lost, err)
		select {
		case <-ctx.Done():
		case <-time.After(resubscribe):
		}
	}
}

func sendUntilDone[T any](ctx context.Context, c chan<- T, v T) {
	select {
	case c <- v:
	case <-ctx.Done():
	}
}

// jitter returns d, plus or minus up to a tenth. It spreads the rounds of nodes that started
// at the same time.
func jitter(d time.Duration) time.Duration {
	return d - d/10 + rand.N(d/5+1)
}

func (w *Watcher) publish() {
	if w.Publish != nil {
		w.Publish(w.State())
	}
}

func (w *Watcher) setPolicy(p *policy.Policy) {
	w.policy = p
	w.links = nil
	for _, l := range setting.Links(p) {
		if l.Metadata().Drift != policy.Ignore {
			w.links = append(w.links, l)
		}
	}
}

// takePolicy puts the policy of a round into use. It reports a policy that could not be read
// once. The last good policy then stays in use, with the current facts.
func (w *Watcher) takePolicy(ctx context.Context, f found) {
	mistake := ""
	former, reread := w.policy, f.reread && f.err == nil
	w.setPolicy(f.policy)
	w.markExisting(ctx, former, reread)
	if f.err == nil {
		if reread {
			for _, k := range w.known {
				clear(k.matches) // a requirement of the same name may now match other links
			}
			w.reportTrouble("reloaded the policy: " + report.Count(len(f.policy.Files), "file"))
		}
	} else if mistake = f.err.Error(); mistake != w.State().PolicyError {
		w.reportTrouble("the policy cannot be read, the last good one stays in use: " + mistake)
	}
	w.updateStatus(func(s *Status) { s.PolicyError, s.Policy = mistake, w.policy })
}

func (w *Watcher) reportWrite(c report.AppliedChange) {
	if w.Wrote != nil {
		w.Wrote(c)
	}
}

func (w *Watcher) reportTrouble(line string) {
	if w.Trouble != nil {
		w.Trouble(line)
	}
}
