package watch

import (
	"context"
	"slices"
	"time"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/checks/setting"
	"nodegate/checks/writers"
	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/host"
	"nodegate/internal/verdict"
	"nodegate/policy"
)

// round is the inspection of everything. It runs beside the loop: a rule dump takes
// seconds, and must not delay the setting of links.
type round struct {
	host   *host.Host
	policy func(reread bool) (*policy.Policy, error)
	audit  func(*policy.Policy) []checks.Check
	done   chan found
	began  time.Time // the beginning of the one that runs, zero where none does
	again  bool      // another one was requested while it ran
	reread bool      // and with the files read again
	ended  time.Time // the end of the last one
	took   time.Duration
	cut    bool // the last one was cut off
}

// found is what a round found, and the policy it used.
type found struct {
	policy *policy.Policy
	err    error // why the policy is not the one of the files as they are: it is the last good one
	reread bool
	cut    bool // its time was over before everything was inspected
	list   []checks.Check
	report checks.Outcome
}

func (r *round) begin(ctx context.Context, last *policy.Policy, reread bool) {
	if !r.began.IsZero() {
		r.again, r.reread = true, r.reread || reread
		return
	}
	r.began, r.again, r.reread = time.Now(), false, false
	go func() {
		ctx, cancel := context.WithTimeout(ctx, roundTime)
		defer cancel()
		f := found{reread: reread}
		if f.policy, f.err = r.policy(reread); f.policy == nil {
			f.policy = last
		}
		f.list = watched(f.policy)
		if r.audit != nil {
			f.list = append(f.list, r.audit(f.policy)...)
		}
		f.report = checks.Inspect(ctx, r.host, checks.Run, f.list)
		f.cut = ctx.Err() != nil
		r.done <- f
	}()
}

// repeats reports whether a round says nothing yet, and is done again at once: a machine that was busy for so long is not one of which
// nothing is known. A second one in turn that is cut off says what it does not know.
func (r *round) repeats(f found) bool {
	again := f.cut && !r.cut && !f.reread
	r.cut = f.cut
	r.again = r.again || again
	return again
}

// wait gives a round that runs half a second to end with its context.
func (r *round) wait() {
	if r.began.IsZero() {
		return
	}
	select {
	case <-r.done:
	case <-time.After(time.Second / 2):
	}
}

// end makes room for the next one, and begins it if it was requested.
func (r *round) end(ctx context.Context, last *policy.Policy) {
	r.ended = time.Now()
	r.took = r.ended.Sub(r.began)
	r.began = time.Time{}
	if r.again {
		r.begin(ctx, last, r.reread)
	}
}

func (r *round) hangs() bool { return !r.began.IsZero() && time.Since(r.began) > 2*roundTime }

// watched returns what the policy asks of the node at boot or while it runs, except
// what it says to ignore.
func watched(p *policy.Policy) []checks.Check {
	list := catalog.For(p, checks.Run)
	names := map[string]bool{}
	for _, c := range list {
		names[c.Name()] = true
	}
	for _, c := range catalog.For(p, checks.Boot) {
		if !names[c.Name()] {
			list = append(list, c)
		}
	}
	return slices.DeleteFunc(list, func(c checks.Check) bool { return c.Metadata().Drift == policy.Ignore })
}

// finish corrects what a round found, as far as the policy allows, and reports the
// rest.
func (w *Watcher) finish(ctx context.Context, f found) {
	w.take(ctx, f)
	all, off := f.report, w.BreakGlass()
	now := time.Now()
	var fix []checks.Check
	for i, res := range all.Results {
		if off != "" || !res.Differs() || res.Metadata.Drift != policy.Correct {
			continue
		}
		if len(res.State.Changes) > 0 && !w.isLink(res.Name) && w.fights.may(res.Name, now) {
			fix = append(fix, f.list[i])
		}
	}
	if links := w.drifting(all); off == "" && len(links) > 0 {
		w.reconcileAll(ctx, links)
		w.merge(&all, w.inspect(ctx, f.list, links))
	}
	if len(fix) > 0 {
		bounded, cancel := context.WithTimeout(ctx, actionTime)
		w.merge(&all, checks.Apply(bounded, w.Host, checks.Run, fix, func(was checks.Result, made []checks.Change) {
			w.wrote(report.Made(was, made))
		}))
		cancel()
	}
	asking, done := context.WithTimeout(ctx, actionTime) // for all of them: a systemd that does not answer must not hang the loop
	for _, c := range fix {
		w.tried(asking, all, c.Name(), now)
	}
	done()
	for _, res := range all.Results {
		if res.Fixed {
			w.corrected(report.Correction{Time: now, Name: res.Name, Was: res.Was, Now: res.State.Got})
		}
		w.announce(res)
	}
	w.end(now)
	first := false
	w.change(func(s *Status) {
		first = s.Rounds == 0
		s.Rounds++
		s.LastRound, s.Report, s.BreakGlass = now, all, off
	})
	if first && w.Ready != nil {
		w.Ready(w.State())
	}
	w.dirty = false
	w.publish()
}

// tried notes the attempt to correct a requirement, of which all has the result, and reports a fight that begins with it. Why the
// attempt failed is announced, also of a requirement that is known to fail, but not again at each further attempt.
func (w *Watcher) tried(ctx context.Context, all checks.Outcome, name string, now time.Time) {
	i := slices.IndexFunc(all.Results, func(r checks.Result) bool { return r.Name == name })
	res := all.Results[i]
	if !res.Fixed && res.Err == nil && !res.Differs() {
		return // it was right again before anything was written
	}
	begins, news := w.fights.note(name, now, !res.Fixed)
	if news {
		delete(w.verdicts, name)
	}
	if begins {
		w.fight(ctx, name)
	}
}

func (w *Watcher) isLink(name string) bool {
	return slices.ContainsFunc(w.links, func(l setting.LinkRequirement) bool { return l.Name() == name })
}

// drifting returns the link requirements that fail in the report and are to be
// corrected: link by link, because a fight over one must not spare the others.
func (w *Watcher) drifting(found checks.Outcome) []setting.LinkRequirement {
	var all []setting.LinkRequirement
	for _, l := range w.links {
		if l.Metadata().Drift == policy.Correct && slices.ContainsFunc(found.Results, func(r checks.Result) bool {
			return r.Name == l.Name() && r.Differs()
		}) {
			all = append(all, l)
		}
	}
	return all
}

// inspect inspects the links' requirements again.
func (w *Watcher) inspect(ctx context.Context, list []checks.Check, links []setting.LinkRequirement) checks.Outcome {
	ctx, cancel := context.WithTimeout(ctx, actionTime)
	defer cancel()
	return checks.Inspect(ctx, w.Host, checks.Run, slices.DeleteFunc(slices.Clone(list), func(c checks.Check) bool {
		return !slices.ContainsFunc(links, func(l setting.LinkRequirement) bool { return l.Name() == c.Name() })
	}))
}

// merge replaces results by those from after the correction.
func (w *Watcher) merge(before *checks.Outcome, after checks.Outcome) {
	for _, res := range after.Results {
		if i := slices.IndexFunc(before.Results, func(r checks.Result) bool { return r.Name == res.Name }); i >= 0 {
			before.Results[i] = res
		}
	}
}

// announce reports once that a requirement fails or is unknown, and once that it passes
// again.
func (w *Watcher) announce(res checks.Result) {
	before, seen := w.verdicts[res.Name]
	w.verdicts[res.Name] = res.Verdict
	fine := func(v verdict.Verdict) bool { return v == verdict.Pass || v == verdict.Skipped }
	if w.Changed == nil || res.Verdict == before && seen || fine(res.Verdict) && (!seen || fine(before)) {
		return
	}
	w.Changed(res)
}

// fight reports a fight once, with the most likely writer of the other value, as far as systemd says until ctx ends.
func (w *Watcher) fight(ctx context.Context, key string) {
	b := w.fights[key]
	f := report.Fight{Name: key, Since: b.since, Next: b.next, Writer: writers.LikelyWriter(ctx, w.Host, w.policy, key)}
	w.change(func(s *Status) { s.Fights = append(s.Fights, f) })
	w.dirty = true
	if w.Fighting != nil {
		w.Fighting(f, false)
	}
}

// end forgets the fights that are over, and updates the pauses of the others.
func (w *Watcher) end(now time.Time) {
	ended := w.fights.over(now)
	var over []report.Fight
	w.change(func(s *Status) {
		s.Fights = slices.DeleteFunc(s.Fights, func(f report.Fight) bool {
			is := slices.Contains(ended, f.Name)
			if is {
				over = append(over, f)
			}
			return is
		})
		for i := range s.Fights {
			s.Fights[i].Next = w.fights[s.Fights[i].Name].next
		}
	})
	for _, f := range over {
		if w.Fighting != nil {
			w.Fighting(f, true)
		}
	}
}
