// Package settle separates persistent differences from temporary ones. The rules and the API cannot be read at the same instant, and
// kube-proxy needs time, so a difference in one reading is only a suspect. The package watches the API and reads the rules again until
// the suspect is explained or has stayed the same for longer than kube-proxy needs.
package settle

import (
	"context"
	"fmt"
	"slices"
	"time"

	"nodegate/internal/audit/proxy"
	"nodegate/internal/verdict"
)

// RuleReader reads the audited node repeatedly.
type RuleReader interface {
	// Rules reads the rules and judges them without the API.
	Rules(ctx context.Context) (proxy.Judgment, error)
	// Live returns queries to kube-proxy about facts that the rules of the last reading do not show.
	Live() proxy.Live
	// Proxy checks whether kube-proxy runs and answers. It returns nil if both are true.
	Proxy(ctx context.Context) []proxy.Finding
	// Writer returns the process with which kube-proxy is writing rules now.
	Writer() Writer
	// Written returns kube-proxy's own data about its syncs, by family; empty if unavailable.
	Written() map[string]Written
}

// Node is the audited node.
type Node interface {
	RuleReader
	// Flows returns findings about stale flows of conntrack. It runs in parallel to the other readings.
	Flows(ctx context.Context, api API, listed *proxy.Versions, settle time.Duration) []proxy.Finding
	// Conclude queries kube-proxy itself, and adds the findings about that and about both to the
	// report. compared reports whether the rules were compared with the API.
	Conclude(ctx context.Context, out *Outcome, compared bool)
}

// API is the reference for the rules.
type API interface {
	// Follow sends the changes since the lists until the context ends or following fails.
	Follow(ctx context.Context, from *proxy.Versions, send func(proxy.Event)) error
	// List lists the API again. If latest is set, it bypasses all caches.
	List(ctx context.Context, latest bool) (*proxy.Versions, error)
}

// Options are the options of Run.
type Options struct {
	Settle   time.Duration // report a difference only after it has persisted this long
	Patient  bool          // no operator waits: findings of the rules alone must persist this long too, and the rules are read less often
	Node     string
	Progress func(open int, d time.Duration) // called after each look; may be nil
}

// Outcome is the result of Run.
type Outcome struct {
	Report    proxy.Judgment // with the persistent findings and the unknown ones
	Converged int            // Service ports that differed from the API, but agree now
	Looks     int            // number of readings of the rules
	Stale     bool           // a difference from the API is persistent
	Writing   bool           // kube-proxy was in a long sync when the time ended
	Behind    bool           // the watch of the API lacks a change that a list without caches has
}

const (
	pause, longestPause = 300 * time.Millisecond, 5 * time.Second // between two looks
	// A reading is torn if kube-proxy wrote rules during it. A finding of the rules alone must
	// occur in this many looks over this time, within which a sync counts as long.
	tornLooks = 3
	tornTime  = longWrite + time.Second
	// The conclusion queries kube-proxy four times in mostReserve if an update waits.
	reserve, mostReserve = time.Second, 8 * time.Second
	stuckWrite           = 2 * time.Minute // a longer sync is no longer an excuse, unless its process shows progress
)

// loop is the state of one audit.
type loop struct {
	node     RuleReader
	api      API
	versions *proxy.Versions
	opts     Options

	began    time.Time
	latest   proxy.Judgment
	looks    int
	looked   time.Time                  // end of the last look
	rest     time.Duration              // pause before the next look
	writings map[string]*writings       // kube-proxy's syncs, by family
	writer   Writer                     // the writer of a long sync at the last look
	suspects []*suspect                 // differences from the API
	alone    []*candidate               // findings of the rules alone
	shown    map[proxy.ServicePort]bool // Service ports of alone
	damaged  map[proxy.ServicePort]bool // Service ports with findings in the latest rules
	proxy    []*candidate               // findings about kube-proxy
	changes  map[string]int             // changes of each Service since the list
	follows  bool                       // the watch of the API has been started
	end      func()                     // stops the watch
	events   chan change                // events of the watch
	broken   error                      // error that ended the watch
	out      Outcome
	found    []proxy.Finding
}

// Run reads the node's rules and flows until nothing is uncertain or the context ends. Uncertain findings become unknown. Then the node
// concludes. versions is a list of the API that was made before. It and api are nil if the rules are not to be compared with the API. If
// the rules cannot be read, the outcome has only the stale flows.
func Run(ctx context.Context, node Node, api API, versions *proxy.Versions, opts Options) (Outcome, error) {
	flows := make(chan []proxy.Finding, 1)
	if versions == nil {
		flows <- nil
	} else {
		listed := versions.Current() // changes are applied to the other one
		go func() { flows <- node.Flows(ctx, api, listed, opts.Settle) }()
	}
	out, err := settleRules(ctx, node, api, versions, opts)
	out.Report.Conclude(append(out.Report.Findings, <-flows...))
	if err == nil {
		node.Conclude(ctx, &out, versions != nil)
	}
	return out, err
}

func settleRules(ctx context.Context, node RuleReader, api API, versions *proxy.Versions, opts Options) (Outcome, error) {
	l := &loop{node: node, api: api, versions: versions, opts: opts, began: time.Now(), changes: map[string]int{},
		writings: map[string]*writings{}, end: func() {}}
	looking := ctx
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		left := time.Until(deadline)
		kept := min(max(reserve, (left-2*opts.Settle)/4), mostReserve, left/4)
		looking, cancel = context.WithDeadline(ctx, deadline.Add(-kept))
		defer cancel()
	}
	if err := l.firstLook(looking); err != nil {
		return Outcome{}, err
	}
	defer func() { l.end() }()
	l.follow(ctx)
	for l.countOpen() > 0 && l.wait(looking, l.rest, func() bool { return false }) {
		if err := l.recheckRules(looking); err != nil {
			break // the time is over or the rules cannot be read: open findings become unknown
		}
		l.follow(ctx)
	}
	l.conclude(ctx)
	return l.out, nil
}

// firstLook makes the first look.
func (l *loop) firstLook(ctx context.Context) (err error) {
	began := time.Now()
	if l.latest, err = l.node.Rules(ctx); err != nil {
		return err
	}
	l.looks = 1
	if l.versions != nil {
		l.versions.Complete(&l.latest, l.node.Live())
	}
	now := time.Now()
	l.looked = now
	l.restAfter(now.Sub(began))
	needs := tornTime
	if l.opts.Patient {
		needs = max(needs, l.opts.Settle)
	}
	l.alone = newCandidates(l.latest.Findings, now, needs)
	if l.latest.Mode != "" {
		l.proxy = newCandidates(l.node.Proxy(ctx), now, l.opts.Settle)
	}
	l.damaged, l.shown = l.latest.Broken(), candidatePorts(l.alone)
	if l.versions != nil {
		l.compare(now)
	}
	return nil
}

// facts returns the options of a comparison of the latest rules.
func (l *loop) facts() proxy.Options {
	return proxy.Options{NodeName: l.opts.Node, Live: l.node.Live()}
}

// recheckRules reads the rules again and keeps the suspects that have not changed.
func (l *loop) recheckRules(ctx context.Context) error {
	l.dropExplained() // a change since the last look may explain the suspects
	began := time.Now()
	written := l.node.Written() // before the rules are read: all changes written by then are in them
	rep, err := l.node.Rules(ctx)
	if err != nil {
		return err
	}
	if l.latest = rep; l.versions != nil {
		l.versions.Complete(&l.latest, l.node.Live())
	}
	l.looks++
	now := time.Now()
	l.updateAlone(now)
	if len(l.proxy) > 0 {
		l.proxy = keepRepeated(l.proxy, l.node.Proxy(ctx))
	}
	l.dropExplained()
	l.looked = now
	l.recordWritten(written)
	l.excuseLongSync(now)
	l.restAfter(now.Sub(began))
	if l.opts.Progress != nil {
		l.opts.Progress(l.countOpen(), now.Sub(l.began))
	}
	return nil
}

// restAfter sets the pause after a look that took some time: an expensive one is not repeated immediately.
func (l *loop) restAfter(took time.Duration) {
	if l.opts.Patient {
		took *= 4
	}
	if l.rest = min(max(took, pause), longestPause); l.writer.PID != 0 {
		l.rest = max(l.rest, longWrite)
	}
}

// dropExplained drops the suspects that are explained.
func (l *loop) dropExplained() {
	now := time.Now()
	l.suspects = slices.DeleteFunc(l.suspects, func(s *suspect) bool { return l.isExplained(s, now) })
}

// countOpen returns the number of uncertain findings and suspects.
func (l *loop) countOpen() int {
	now, n := time.Now(), 0
	for _, s := range l.suspects {
		if !l.shown[s.port] && !l.isSettled(s, now) && l.broken == nil {
			n++
		}
	}
	for _, h := range slices.Concat(l.alone, l.proxy) {
		if l.looked.Sub(h.since) < h.needs || h.looks < tornLooks {
			n++
		}
	}
	return n
}

// conclude converts persistent findings into results. The others become unknown.
func (l *loop) conclude(ctx context.Context) {
	now := time.Now()
	for _, h := range slices.Concat(l.alone, l.proxy) {
		f := h.last
		switch {
		case h.looks > 1 && l.looked.Sub(h.since) >= h.needs:
			f.Message += fmt.Sprintf("; seen since %s (%s) in %d consecutive readings",
				h.since.Format(time.TimeOnly), seconds(now.Sub(h.since)), h.looks)
		case f.Verdict == verdict.Unknown:
		case h.looks > 1:
			markUncertain(&f, "; the audit timed out"+l.writer.Describe())
		default:
			markUncertain(&f, "; seen in one reading, then the audit timed out")
		}
		l.found = append(l.found, f)
	}
	l.judgeSuspects(ctx, now)
	l.latest.Conclude(l.found)
	l.out.Report, l.out.Looks, l.out.Writing = l.latest, l.looks, l.writer.PID != 0
}
