package settle

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"nodegate/internal/proxyrules"
)

// FollowedNode is a node that is looked at for as long as nodegate watch runs.
type FollowedNode interface {
	RuleReader
	// Generation returns what differs whenever the rules do, "" where only reading them says. Where it is not sure, rules may have changed
	// with the same generation, though most changes show.
	Generation(ctx context.Context) (generation string, sure bool, err error)
	// Spent returns the processor time that this process has used since it began, with the programs that it ran.
	Spent() time.Duration
	// Flows looks for what conntrack still believes, beside a round.
	Flows(ctx context.Context, api API, now *proxyrules.Versions, settle time.Duration) []proxyrules.Finding
}

// FollowOptions bounds Keep.
type FollowOptions struct {
	Node, Zone string
	Settle     func() time.Duration // asked before each round: kube-proxy's configuration may come later
	Every      time.Duration        // the rules are read so often where Generation says nothing, and rarely where it is not sure
	Done       func(Progress)       // after each round
	Looked     func()               // whenever it has looked, also where that needed no round; may be nil
}

// Progress is what has been found.
type Progress struct {
	Findings   []proxyrules.Finding
	Notes      []string  // of how the rules were read
	Audited    time.Time // the end of the last round
	Services   int       // ports of Services in the rules
	Rounds     int
	Reads      int   // of the rules
	Changes    int   // of the API
	Unanswered error // why the API was not compared with
	Unread     error // why the rules were not
	Delay      Delays
}

const (
	quiet     = time.Second      // kube-proxy writes most changes within it
	lookEvery = 30 * time.Second // at what costs little: the generation, and whether kube-proxy is there
	rarely    = 4                // times Every
	sooner    = 10               // times what it used is waited for at most after a round without peace, and twice as long after each one more
	roundTime = time.Minute      // and the time that settling takes
)

// follower is one Keep.
type follower struct {
	node       FollowedNode
	feed       *feed
	opts       FollowOptions
	kept       Progress
	doubts     int           // the last rounds that did not end in peace
	generation string        // of the rules that it read
	looked     time.Time     // last
	again      time.Duration // after which what is in doubt is read again
	full       time.Time     // the rules are read then where nothing says whether they have changed
	rare       time.Time     // and then where they seem to be the same
	rest       time.Time     // no round before
	budget     budget
}

// Follow audits a node until the context ends. It keeps one watch of the API open, and reads the rules when a change of the API
// has had time to settle, when they have changed, and every few minutes where that cannot be told.
func Follow(ctx context.Context, node FollowedNode, api API, opts FollowOptions) {
	k := &follower{node: node, feed: newFeed(api), opts: opts, budget: newBudget(opts.Every, time.Now())}
	done := make(chan struct{})
	go func() {
		defer close(done)
		k.feed.run(ctx)
	}()
	for ctx.Err() == nil {
		wait := time.NewTimer(time.Until(k.next()))
		select {
		case <-ctx.Done():
		case <-k.feed.news:
		case <-wait.C:
		}
		wait.Stop()
		if ctx.Err() == nil && !time.Now().Before(k.next()) {
			k.turn(ctx)
			if opts.Looked != nil {
				opts.Looked()
			}
		}
	}
	<-done
}

// next returns when something is to be done, as far as is known now.
func (k *follower) next() time.Time {
	at := k.looked.Add(lookEvery)
	if k.doubts > 0 {
		at = k.looked.Add(k.again)
	}
	first, known, unanswered := k.feed.pending()
	switch {
	case !known && unanswered == nil:
		return time.Now().Add(lookEvery) // the first list is under way
	case k.kept.Rounds == 0:
		return time.Time{}
	case !first.IsZero() && first.Add(quiet).Before(at):
		at = first.Add(quiet)
	}
	if at.Before(k.rest) {
		return k.rest
	}
	return at
}

// turn looks at what costs little, and makes a round where that is not enough.
func (k *follower) turn(ctx context.Context) {
	k.looked = time.Now()
	first, _, unanswered := k.feed.pending()
	generation, sure, err := k.node.Generation(ctx)
	same := err == nil && generation != "" && generation == k.generation && (sure || k.looked.Before(k.rare)) ||
		generation == "" && k.looked.Before(k.full)
	if same && k.doubts == 0 && first.IsZero() && unanswered == nil && len(k.node.Proxy(ctx)) == 0 {
		return
	}
	k.round(ctx, generation, unanswered)
}

func (k *follower) round(ctx context.Context, generation string, unanswered error) {
	settle := k.opts.Settle()
	bounded, cancel := context.WithTimeout(ctx, settle+roundTime)
	defer cancel()
	began, read, spent := time.Now(), &counted{RuleReader: k.node}, k.node.Spent()
	now, changed := k.feed.begin()
	defer k.feed.end()
	// Nobody waits for this verdict, and kube-proxy may be at its first writing of many rules.
	opts := Options{Settle: settle, Patient: true, Node: k.opts.Node, Zone: k.opts.Zone}
	flows := make(chan []proxyrules.Finding, 1)
	var out Outcome
	var err error
	if unanswered != nil || now == nil {
		flows <- nil
		out, err = Run(bounded, read, nil, nil, opts)
	} else {
		go func() { flows <- k.node.Flows(bounded, k.feed, now, settle) }()
		out, err = Run(bounded, read, k.feed, now, opts)
	}
	found := append(out.Report.Findings, <-flows...)
	if ctx.Err() != nil {
		return
	}
	k.generation = generation
	k.looked = time.Now()
	every := k.opts.Every - k.opts.Every/10 + rand.N(k.opts.Every/5+1)
	k.full, k.rare = k.looked.Add(every), k.looked.Add(rarely*every)
	k.again = min(2*k.again, k.opts.Every)
	used := k.node.Spent() - spent
	rest := k.budget.spend(used, k.looked)
	if len(found) > 0 || err != nil || unanswered != nil {
		rest = min(rest, used*sooner<<min(k.doubts, 4))
		k.doubts++
	} else {
		k.doubts = 0
	}
	k.rest = k.looked.Add(rest)
	if k.doubts == 0 || !alike(found, k.kept.Findings) {
		k.again = lookEvery
	}
	k.kept.Findings, k.kept.Audited, k.kept.Unanswered, k.kept.Unread = found, k.looked, unanswered, err
	k.kept.Notes = out.Report.Notes
	k.kept.Services = len(out.Report.Services)
	k.kept.Rounds++
	k.kept.Reads += read.times
	k.kept.Changes += len(changed)
	k.kept.Delay.add(changed, out, began, read.first)
	unsure := func(f proxyrules.Finding) bool { return strings.HasPrefix(f.Name, "kubeproxy.truth.un") } // maybe by the fault of the watch
	if out.Behind || !out.Writing && slices.ContainsFunc(found, unsure) {
		k.feed.restart()
	}
	k.opts.Done(k.kept)
}

// alike reports whether two rounds found the same, whatever they say of it.
func alike(a, b []proxyrules.Finding) bool {
	return slices.EqualFunc(a, b, func(a, b proxyrules.Finding) bool { return identity(&a) == identity(&b) })
}

// counted counts how often the rules are read.
type counted struct {
	RuleReader
	times int
	first time.Time // the end of the first reading
}

func (c *counted) Rules(ctx context.Context) (proxyrules.Judgment, error) {
	rep, err := c.RuleReader.Rules(ctx)
	c.times++
	if c.first.IsZero() {
		c.first = time.Now()
	}
	return rep, err
}
