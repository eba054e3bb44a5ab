package settle

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"nodegate/internal/audit/proxy"
)

// FollowedNode is a node that nodegate watch audits continuously.
type FollowedNode interface {
	Node
	// Generation returns a value that changes whenever the rules change, or "" if only reading the
	// rules shows changes. If sure is false, some changes of the rules do not change the value.
	Generation(ctx context.Context) (generation string, sure bool, err error)
	// Spent returns the processor time of this process and its child processes since its start.
	Spent() time.Duration
	// Trouble returns the result of a cheap look at kube-proxy: whether it runs, and the state that it reports. If the names of its
	// findings have changed, a round follows, without a pause after the one before.
	Trouble(ctx context.Context) []proxy.Finding
}

// FollowOptions are the options of Follow.
type FollowOptions struct {
	Node   string
	Settle func() time.Duration // called before each round, because kube-proxy's configuration may appear later
	Every  time.Duration        // interval for reading the rules if Generation returns ""; longer if it is not sure
	Done   func(Progress)       // called after each round
	Looked func(Progress)       // called after each look, and before a round; may be nil
	// Answers is called at first, with a function that returns since when the API has answered: now if it does not. It may be nil.
	Answers func(since func() time.Time)
}

// Progress is the result of the audit so far.
type Progress struct {
	Findings   []proxy.Finding
	Notes      []string  // remarks about how the rules were read
	Audited    time.Time // end of the last round
	Waiting    time.Time // when the oldest change that no round has compared was seen; zero: none
	Services   int       // number of Service ports in the rules
	Rounds     int
	Reads      int   // number of readings of the rules
	Unanswered error // why the rules were not compared with the API
	Unread     error // why the rules could not be read
}

const (
	quiet     = time.Second                  // kube-proxy writes most changes within this time
	lookEvery = 30 * time.Second             // interval of the cheap looks: the generation, and kube-proxy's state
	rarely    = 4                            // multiple of Every
	roundTime = failedWrite + 30*time.Second // limit of a round, in addition to the settle time
)

// restAfter returns the pause after a round that has used processor time. Small clusters are audited with one part in 125 of a processor.
// If a round is expensive, the pause is bounded nevertheless, because a Service that goes stale must be named within a minute. With 2,000
// Services of ten endpoints, of which five change each second, a round uses 0.6 s (nftables) to 1.4 s (iptables), and watch less than half
// of kube-proxy's processor time.
func restAfter(used time.Duration) time.Duration {
	return min(125*used, max(20*time.Second, 55*used), 30*time.Second)
}

// follower is the state of one Follow.
type follower struct {
	node        FollowedNode
	feed        *feed
	opts        FollowOptions
	kept        Progress
	generation  string        // generation of the rules that were read last
	changed     time.Time     // when the rules were first seen with another generation; zero: not since the last round
	trouble     string        // names of the findings of the last cheap look
	reported    string        // the same before the last round
	looked      time.Time     // time of the last look
	rereadAfter time.Duration // interval for rereading rules with findings
	reread      time.Time     // when to reread rules with findings, although nothing has changed; zero: never
	full        time.Time     // when to read the rules if the generation is unknown
	rare        time.Time     // when to read the rules although the generation is the same
	rest        time.Time     // no round before this time
	due         bool          // a round waits for it
}

// Follow audits a node until the context ends. It keeps one watch of the API open. It reads the rules when an API change has had time to
// settle, when the rules have changed, and every few minutes if changes of the rules cannot be detected.
func Follow(ctx context.Context, node FollowedNode, api API, opts FollowOptions) {
	k := &follower{node: node, feed: newFeed(api), opts: opts}
	if opts.Answers != nil {
		opts.Answers(k.feed.answeredSince)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		k.feed.run(ctx)
	}()
	for ctx.Err() == nil {
		wait := time.NewTimer(time.Until(k.nextLook()))
		select {
		case <-ctx.Done():
		case <-k.feed.news:
		case <-wait.C:
		}
		wait.Stop()
		if ctx.Err() == nil && !time.Now().Before(k.nextLook()) {
			k.lookOrAudit(ctx)
			k.report()
		}
	}
	<-done
}

// nextLook returns the time of the next look, as far as it is known now.
func (k *follower) nextLook() time.Time {
	at := k.looked.Add(lookEvery)
	first, known, unanswered := k.feed.pending()
	switch {
	case !known && unanswered == nil:
		return time.Now().Add(lookEvery) // the first list is still running
	case k.kept.Rounds == 0:
		return time.Time{}
	case k.due && k.rest.Before(at):
		at = k.rest
	}
	if due := first.Add(quiet); !first.IsZero() && due.Before(at) {
		if at = due; at.Before(k.rest) {
			at = k.rest
		}
	}
	if soon := k.looked.Add(lookEvery / 3); k.trouble != k.reported && soon.Before(at) {
		at = soon
	}
	return at
}

// lookOrAudit makes the cheap checks, and a round if they are not sufficient.
func (k *follower) lookOrAudit(ctx context.Context) {
	k.looked = time.Now()
	first, _, unanswered := k.feed.pending()
	generation, sure, err := k.node.Generation(ctx)
	unchanged := err == nil && generation != "" && generation == k.generation
	if err == nil && !unchanged && generation != "" && k.changed.IsZero() {
		k.changed = k.looked
	}
	same := unchanged && (sure || k.looked.Before(k.rare)) || generation == "" && k.looked.Before(k.full)
	k.lookAtProxy(ctx)
	again := !k.reread.IsZero() && !k.looked.Before(k.reread) || (unanswered == nil) != (k.kept.Unanswered == nil)
	k.due = !same || again || !first.IsZero() || k.trouble != k.reported
	if k.due && (!k.looked.Before(k.rest) || k.trouble != k.reported) {
		k.report()
		k.runRound(ctx, generation, unanswered)
	}
}

// waiting returns when the oldest change that no round has compared was seen, or the zero time.
func (k *follower) waiting() time.Time {
	first, _, _ := k.feed.pending()
	if first.IsZero() || !k.changed.IsZero() && k.changed.Before(first) {
		return k.changed
	}
	return first
}

// report reports how long changes have waited for a round.
func (k *follower) report() {
	if k.kept.Waiting = k.waiting(); k.opts.Looked != nil {
		k.opts.Looked(k.kept)
	}
}

// lookAtProxy takes a cheap look at kube-proxy.
func (k *follower) lookAtProxy(ctx context.Context) {
	k.trouble = ""
	for _, f := range k.node.Trouble(ctx) {
		k.trouble += f.Name + " "
	}
}

func (k *follower) runRound(ctx context.Context, generation string, unanswered error) {
	settle := k.opts.Settle()
	bounded, cancel := context.WithTimeout(ctx, settle+roundTime)
	defer cancel()
	spent := k.node.Spent()
	now := k.feed.beginRound()
	defer k.feed.endRound()
	// Patient: no operator waits for this result, and kube-proxy may be in its first sync of many rules.
	opts := Options{Settle: settle, Patient: true, Node: k.opts.Node}
	var api API = k.feed
	if unanswered != nil || now == nil {
		api, now = nil, nil
	}
	out, err := Run(bounded, k.node, api, now, opts)
	if err != nil {
		k.node.Conclude(bounded, &out, false) // a kube-proxy that hangs may be the cause
	}
	found := out.Report.Findings
	if ctx.Err() != nil {
		return
	}
	k.generation = generation
	k.looked = time.Now()
	every := k.opts.Every - k.opts.Every/10 + rand.N(k.opts.Every/5+1)
	k.full, k.rare = k.looked.Add(every), k.looked.Add(rarely*every)
	k.rest = k.looked.Add(restAfter(k.node.Spent() - spent))
	k.rereadAfter = min(max(2*k.rereadAfter, lookEvery), k.opts.Every)
	doubts := len(found) > 0 || err != nil || unanswered != nil
	if !doubts || !slices.EqualFunc(found, k.kept.Findings, func(a, b proxy.Finding) bool { return identity(&a) == identity(&b) }) {
		k.rereadAfter = lookEvery
	}
	if k.reread = (time.Time{}); doubts {
		k.reread = k.looked.Add(k.rereadAfter)
	}
	k.changed, k.reported, k.due = time.Time{}, k.trouble, false
	k.lookAtProxy(ctx) // it may have changed during the round
	k.kept.Findings, k.kept.Audited, k.kept.Unanswered, k.kept.Unread = found, k.looked, unanswered, err
	k.kept.Notes = out.Report.Notes
	k.kept.Services = len(out.Report.Services)
	k.kept.Rounds++
	k.kept.Reads += max(out.Looks, 1)
	unsure := func(f proxy.Finding) bool { return strings.HasPrefix(f.Name, "kubeproxy.truth.un") } // the watch may be the cause
	if out.Behind || !out.Writing && slices.ContainsFunc(found, unsure) {
		k.feed.restart()
	}
	k.kept.Waiting = k.waiting()
	k.opts.Done(k.kept)
}
