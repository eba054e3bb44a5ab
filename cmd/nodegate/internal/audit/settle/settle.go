// Package settle tells a difference that lasts from one that passes. Rules and API cannot be read at the same instant, and
// kube-proxy needs time: what one look finds is a suspicion. It is followed, by a watch of the API and by reading the rules
// again, until it is explained, or has stayed the same for longer than kube-proxy needs.
package settle

import (
	"context"
	"fmt"
	"slices"
	"time"

	"nodegate/internal/proxyrules"
	"nodegate/internal/verdict"
)

// RuleReader is what is looked at again and again.
type RuleReader interface {
	// Rules reads the rules and judges them alone.
	Rules(ctx context.Context) (proxyrules.Judgment, error)
	// Proxy looks whether kube-proxy is there and answers. No finding: it does.
	Proxy(ctx context.Context) []proxyrules.Finding
	// Writer returns the process with which kube-proxy writes rules at this moment.
	Writer() Writer
	// Written returns what kube-proxy says of its writings, by family: nothing where it says none.
	Written() map[string]Written
}

// API is what the rules are compared with.
type API interface {
	// Follow sends what changes since the lists until the context ends; an error says why it cannot go on.
	Follow(ctx context.Context, from *proxyrules.Versions, send func(proxyrules.Event)) error
	// List lists again, past every cache where latest is set.
	List(ctx context.Context, latest bool) (*proxyrules.Versions, error)
}

// Options bound the loop.
type Options struct {
	Settle     time.Duration // a difference that stays the same for so long is a finding
	Patient    bool          // nobody waits: what the rules alone show must last for so long too, and they are read less often
	Node, Zone string
	Progress   func(open int, d time.Duration) // told after each look; nil: nobody
}

// Outcome is what remains at the end.
type Outcome struct {
	Report    proxyrules.Judgment // with the findings that have settled, and what is not known
	Converged []Converged
	Looks     int  // how often the rules were read
	Stale     bool // some difference from the API has settled
	Writing   bool // kube-proxy was at one long writing when the time ended
	Behind    bool // the watch of the API has not told what a list past every cache has
}

const (
	pause = 300 * time.Millisecond // between two looks, at least
	// What the rules alone show is torn where kube-proxy wrote while they were read. It must be there in so many looks, over so
	// long a time, in which a writer becomes a long one.
	tornLooks  = 3
	tornTime   = longWrite + time.Second
	reserve    = time.Second     // of the deadline, for what follows
	stuckWrite = 2 * time.Minute // a writing that takes longer is no excuse any more, or must show that it works
)

// loop is one audit.
type loop struct {
	node     RuleReader
	api      API
	versions *proxyrules.Versions
	opts     Options

	began    time.Time
	latest   proxyrules.Judgment
	looks    int
	looked   time.Time                       // the end of the last one
	writings map[string]*writings            // of kube-proxy, by family
	writer   Writer                          // at one long writing, at the last look
	suspects []*suspect                      // differences from the API
	alone    []*held                         // what the rules alone show
	shown    map[proxyrules.ServicePort]bool // the Service ports of that
	damaged  map[proxyrules.ServicePort]bool // those of which the latest rules show anything
	proxy    []*held                         // what is wrong with kube-proxy
	changes  map[string]int                  // of a Service, since the list
	follows  bool                            // the API, or has
	end      func()                          // ends that
	events   chan change                     // of the API, since the list
	broken   error                           // why the API is not followed any more
	out      Outcome
	found    []proxyrules.Finding
}

// Run looks at the node until nothing is in doubt, or until the context ends. What is still in doubt then is unknown. The
// versions are what the API has listed, before; both they and the API are nil where the rules are compared with nothing.
func Run(ctx context.Context, node RuleReader, api API, versions *proxyrules.Versions, opts Options) (Outcome, error) {
	l := &loop{node: node, api: api, versions: versions, opts: opts, began: time.Now(), changes: map[string]int{},
		writings: map[string]*writings{}, end: func() {}}
	looking := ctx
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		looking, cancel = context.WithDeadline(ctx, deadline.Add(-min(reserve, time.Until(deadline)/4)))
		defer cancel()
	}
	if err := l.first(looking); err != nil {
		return Outcome{}, err
	}
	defer func() { l.end() }()
	l.follow(ctx)
	for l.open() > 0 && l.wait(looking, pause, func() bool { return false }) {
		if err := l.look(looking); err != nil {
			break // the end of the time, or rules that cannot be read any more: what is open stays unknown
		}
		l.follow(ctx)
	}
	l.conclude(ctx)
	return l.out, nil
}

// first looks for the first time.
func (l *loop) first(ctx context.Context) (err error) {
	if l.latest, err = l.rules(ctx); err != nil {
		return err
	}
	l.looks = 1
	if l.versions != nil {
		l.versions.NameServices(&l.latest)
		l.versions.Unserved(&l.latest)
	}
	now := time.Now()
	l.looked = now
	l.alone = hold(l.latest.Findings, now)
	if l.latest.Mode != "" {
		l.proxy = hold(l.node.Proxy(ctx), now)
	}
	l.damaged, l.shown = l.latest.Broken(), ports(l.alone)
	if l.versions != nil {
		l.compare(now)
	}
	return nil
}

// rules reads and judges the rules. Where there are two reports at a time for long, neither keeps the rules' text.
func (l *loop) rules(ctx context.Context) (proxyrules.Judgment, error) {
	rep, err := l.node.Rules(ctx)
	if l.opts.Patient {
		rep.CloneStrings()
	}
	return rep, err
}

// look reads the rules again, and keeps in doubt what is still as it was.
func (l *loop) look(ctx context.Context) error {
	l.sift() // a change that came since the last look may explain what it saw
	began := time.Now()
	written := l.node.Written() // before the rules are read: what was written by then is in them
	rep, err := l.rules(ctx)
	if err != nil {
		return err
	}
	if l.latest = rep; l.versions != nil {
		l.versions.NameServices(&l.latest)
		l.versions.Unserved(&l.latest)
	}
	l.looks++
	now := time.Now()
	l.again(now)
	if len(l.proxy) > 0 {
		l.proxy = still(l.proxy, l.node.Proxy(ctx))
	}
	l.sift()
	l.looked = now
	l.note(written)
	l.excuse(now)
	rest := now.Sub(began) // a reading that takes seconds is not asked for all the time
	if l.opts.Patient {
		rest *= 4
	}
	if rest = min(rest, 5*time.Second); l.writer.PID != 0 {
		rest = max(rest, longWrite)
	}
	if l.opts.Progress != nil {
		l.opts.Progress(l.open(), now.Sub(l.began))
	}
	l.wait(ctx, rest, func() bool { return false })
	return nil
}

// sift keeps the suspects that nothing explains.
func (l *loop) sift() {
	now := time.Now()
	l.suspects = slices.DeleteFunc(l.suspects, func(s *suspect) bool { return l.explained(s, now) })
}

// open returns how much is in doubt.
func (l *loop) open() int {
	now, n := time.Now(), 0
	for _, s := range l.suspects {
		if !l.shown[s.port] && !l.settled(s, now) && l.broken == nil {
			n++
		}
	}
	for _, h := range l.alone {
		if !l.lasts(h) || h.looks < tornLooks {
			n++
		}
	}
	for _, h := range l.proxy {
		if now.Sub(h.since) < l.opts.Settle {
			n++
		}
	}
	return n
}

// conclude makes findings of what has settled. The rest is unknown.
func (l *loop) conclude(ctx context.Context) {
	now := time.Now()
	for _, h := range l.alone {
		f := h.last
		switch {
		case h.looks > 1 && l.lasts(h):
			f.Message += fmt.Sprintf("; so since %s (%s ago), in each of %d readings",
				h.since.Format(time.TimeOnly), seconds(now.Sub(h.since)), h.looks)
		case f.Verdict == verdict.Unknown:
		case h.looks > 1:
			doubt(&f, "; then the time of the audit ended"+l.writer.Says())
		default:
			doubt(&f, "; seen in the only reading that there was time for")
		}
		l.found = append(l.found, f)
	}
	for _, h := range l.proxy {
		f := h.last
		if now.Sub(h.since) < l.opts.Settle {
			f.Verdict = verdict.Unknown
			f.Message += "; for " + seconds(now.Sub(h.since)) + ", then the time of the audit ended"
		} else {
			f.Message += fmt.Sprintf("; so since %s (%s ago)", h.since.Format(time.TimeOnly), seconds(now.Sub(h.since)))
		}
		l.found = append(l.found, f)
	}
	l.judge(ctx, now)
	l.latest.Conclude(l.found)
	l.out.Report, l.out.Looks, l.out.Writing = l.latest, l.looks, l.writer.PID != 0
}
