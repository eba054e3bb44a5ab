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
	// Trouble returns the result of a cheap look at kube-proxy: whether it runs, and the state that it
	// reports. A round follows if the names of its findings have changed.
	Trouble(ctx context.Context) []proxy.Finding
}

// FollowOptions are the options of Follow.
type FollowOptions struct {
	Node, Zone string
	Settle     func() time.Duration // called before each round, because kube-proxy's configuration may appear later
	Every      time.Duration        // interval for reading the rules if Generation returns ""; longer if it is not sure
	Done       func(Progress)       // called after each round
	Looked     func()               // called after each look, even if it needed no round; may be nil
}

// Progress is the result of the audit so far.
type Progress struct {
	Findings   []proxy.Finding
	Notes      []string  // remarks about how the rules were read
	Audited    time.Time // end of the last round
	Services   int       // number of Service ports in the rules
	Rounds     int
	Reads      int   // number of readings of the rules
	Changes    int   // number of changes in the API
	Unanswered error // why the rules were not compared with the API
	Unread     error // why the rules could not be read
	Delay      Delays
}

const (
	quiet     = time.Second      // kube-proxy writes most changes within this time
	lookEvery = 30 * time.Second // interval of the cheap looks: the generation, and kube-proxy's state
	rarely    = 4                // multiple of Every
	// After a round with open findings, the rest is at most this multiple of its processor time. Each
	// further such round doubles it.
	sooner    = 10
	roundTime = failedWrite + 30*time.Second // limit of a round, in addition to the settle time
)

// follower is the state of one Follow.
type follower struct {
	node        FollowedNode
	feed        *feed
	opts        FollowOptions
	kept        Progress
	doubts      int           // number of latest rounds in a row that had findings or errors
	generation  string        // generation of the rules that were read last
	trouble     string        // names of the findings of the last cheap look
	looked      time.Time     // time of the last look
	rereadAfter time.Duration // interval for rereading rules with findings
	reread      time.Time     // when to reread rules with findings, although nothing has changed
	full        time.Time     // when to read the rules if the generation is unknown
	rare        time.Time     // when to read the rules although the generation is the same
	rest        time.Time     // no round before this time
	budget      budget
	parts       parts
}

// Follow audits a node until the context ends. It keeps one watch of the API open. It reads the
// rules when an API change has had time to settle, when the rules have changed, and every few
// minutes if changes of the rules cannot be detected.
func Follow(ctx context.Context, node FollowedNode, api API, opts FollowOptions) {
	k := &follower{node: node, feed: newFeed(api), opts: opts, budget: newBudget(opts.Every, time.Now())}
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
			if opts.Looked != nil {
				opts.Looked()
			}
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
	case !first.IsZero() && first.Add(quiet).Before(at):
		at = first.Add(quiet)
	}
	if k.parts.proof {
		at = time.Time{}
	}
	if at.Before(k.rest) {
		at = k.rest
	}
	if part := k.nextPart(); !part.IsZero() && part.Before(at) {
		return part
	}
	return at
}

// lookOrAudit makes the cheap checks, and a round if they are not sufficient.
func (k *follower) lookOrAudit(ctx context.Context) {
	if part := k.nextPart(); !part.IsZero() && !part.After(time.Now()) {
		if k.runPart(ctx); !k.parts.proof || time.Now().Before(k.rest) {
			return
		}
	}
	k.looked = time.Now()
	first, _, unanswered := k.feed.pending()
	generation, sure, err := k.node.Generation(ctx)
	same := err == nil && generation != "" && generation == k.generation && (sure || k.looked.Before(k.rare)) ||
		generation == "" && k.looked.Before(k.full)
	before := k.trouble
	k.trouble = ""
	for _, f := range k.node.Trouble(ctx) {
		k.trouble += f.Name + " "
	}
	due := k.doubts > 0 && !k.looked.Before(k.reread) || (unanswered == nil) != (k.kept.Unanswered == nil)
	if same && !due && !k.parts.proof && first.IsZero() && k.trouble == before {
		return
	}
	k.runRound(ctx, generation, unanswered)
	_, partly := k.node.(PartReader)
	k.parts.able, k.parts.proof, k.parts.known = partly && sure && generation != "", false, nil
}

func (k *follower) runRound(ctx context.Context, generation string, unanswered error) {
	settle := k.opts.Settle()
	bounded, cancel := context.WithTimeout(ctx, settle+roundTime)
	defer cancel()
	began, read, spent := time.Now(), &counted{Node: k.node}, k.node.Spent()
	now, changed := k.feed.beginRound()
	defer k.feed.endRound()
	// Patient: no operator waits for this result, and kube-proxy may be in its first sync of many
	// rules.
	opts := Options{Settle: settle, Patient: true, Node: k.opts.Node, Zone: k.opts.Zone, known: k.parts.known, handOver: k.handOver()}
	var api API = k.feed
	if unanswered != nil || now == nil {
		api, now = nil, nil
	}
	out, err := Run(bounded, read, api, now, opts)
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
	k.rereadAfter = min(2*k.rereadAfter, k.opts.Every)
	used := k.node.Spent() - spent
	rest := k.budget.recordUse(used, k.looked)
	if len(found) > 0 || err != nil || unanswered != nil {
		rest = min(rest, used*sooner<<min(k.doubts, 4))
		k.doubts++
	} else {
		k.doubts = 0
	}
	k.rest = k.looked.Add(rest)
	if k.doubts == 0 || !sameFindings(found, k.kept.Findings) {
		k.rereadAfter = lookEvery
	}
	k.reread = k.looked.Add(k.rereadAfter)
	k.kept.Findings, k.kept.Audited, k.kept.Unanswered, k.kept.Unread = found, k.looked, unanswered, err
	k.kept.Notes = out.Report.Notes
	k.kept.Services = len(out.Report.Services)
	k.kept.Rounds++
	k.kept.Reads += read.times
	k.putBack(changed)
	k.kept.Changes += len(changed)
	k.kept.Delay.add(changed, out, began, read.first)
	unsure := func(f proxy.Finding) bool { return strings.HasPrefix(f.Name, "kubeproxy.truth.un") } // the watch may be the cause
	if out.Behind || !out.Writing && slices.ContainsFunc(found, unsure) {
		k.feed.restart()
	}
	k.opts.Done(k.kept)
}

// sameFindings reports whether two rounds have the same findings, whatever their messages.
func sameFindings(a, b []proxy.Finding) bool {
	return slices.EqualFunc(a, b, func(a, b proxy.Finding) bool { return identity(&a) == identity(&b) })
}

// counted counts the readings of the rules.
type counted struct {
	Node
	times int
	first time.Time // end of the first reading
}

func (c *counted) Rules(ctx context.Context) (proxy.Judgment, error) {
	rep, err := c.Node.Rules(ctx)
	c.times++
	if c.first.IsZero() {
		c.first = time.Now()
	}
	return rep, err
}
