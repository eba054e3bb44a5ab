package watch

import (
	"context"
	"fmt"
	"slices"
	"strings"
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

// round inspects all requirements. It runs in parallel to the loop, because a rule dump takes
// seconds and must not delay the setting of links.
type round struct {
	host      *host.Host
	policy    func(reread bool) (*policy.Policy, error)
	audit     func(*policy.Policy) []checks.Check
	passed    func() time.Time // when the gate last passed
	done      chan found
	began     time.Time // the start of the running round, zero if none runs
	requested bool      // another one was requested while it ran
	reread    bool      // the requested round must reread the files
	ended     time.Time // the end of the last round
	took      time.Duration
	cut       bool // the last round was cut
}

// found is the result of a round, with the policy it used.
type found struct {
	policy *policy.Policy
	err    error // why the current files are not in use; policy is then the last good one
	reread bool
	cut    bool // the round ran out of time before everything was inspected, or the gate passed during it
	list   []checks.Check
	report checks.Outcome
}

func (r *round) begin(ctx context.Context, last *policy.Policy, reread bool) {
	if !r.began.IsZero() {
		r.requested, r.reread = true, r.reread || reread
		return
	}
	began := time.Now()
	r.began, r.requested, r.reread = began, false, false
	go func() {
		ctx, cancel := context.WithTimeout(ctx, roundTime)
		defer cancel()
		f := found{reread: reread}
		if f.policy, f.err = r.policy(reread); f.policy == nil {
			f.policy = last
		}
		f.list = watchedChecks(f.policy)
		if r.audit != nil {
			f.list = append(f.list, r.audit(f.policy)...)
		}
		f.report = checks.Inspect(ctx, r.host, checks.Run, f.list)
		f.cut = ctx.Err() != nil || r.passed().After(began)
		r.done <- f
	}()
}

// mustRepeat reports whether a round was cut and is repeated at once instead of being reported: a busy machine must not become unknown
// after one slow round, nor a node fail that has just passed the gate. If the next round is cut too, it is reported.
func (r *round) mustRepeat(f found) bool {
	repeat := f.cut && !r.cut && !f.reread
	r.cut = f.cut
	r.requested = r.requested || repeat
	return repeat
}

// waitForEnd waits up to half a second for a running round to end with its context.
func (r *round) waitForEnd() {
	if r.began.IsZero() {
		return
	}
	select {
	case <-r.done:
	case <-time.After(time.Second / 2):
	}
}

// end marks the round as ended, and starts the next one if it was requested.
func (r *round) end(ctx context.Context, last *policy.Policy) {
	r.ended = time.Now()
	r.took = r.ended.Sub(r.began)
	r.began = time.Time{}
	if r.requested {
		r.begin(ctx, last, r.reread)
	}
}

func (r *round) isHanging() bool { return !r.began.IsZero() && time.Since(r.began) > 2*roundTime }

// watchedChecks returns the policy's checks of the stages boot and run, except those whose drift
// is ignored.
func watchedChecks(p *policy.Policy) []checks.Check {
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

// finishRound corrects the drift that a round found, if the policy allows it, and reports the
// rest.
func (w *Watcher) finishRound(ctx context.Context, f found) {
	w.takePolicy(ctx, f)
	all, off := f.report, w.BreakGlass()
	now := time.Now()
	var fix []checks.Check
	for i, res := range all.Results {
		if off != "" || !res.Differs() || res.Metadata.Drift != policy.Correct {
			continue
		}
		isLink := slices.ContainsFunc(w.links, func(l setting.Link) bool { return l.Name() == res.Name })
		if len(res.State.Changes) > 0 && !isLink && w.fights.mayCorrect(res.Name, now) {
			fix = append(fix, f.list[i])
		}
	}
	if off == "" {
		if links := w.failingLinks(all, policy.Correct); len(links) > 0 {
			w.reconcileAll(ctx, links, true)
		}
		// A round may meet a link before watch has set it, and another one may appear while that is corrected here.
		for i := range 3 {
			links := w.failingLinks(all, "")
			if len(links) == 0 || !w.reconcileAll(ctx, links, false) && i > 0 {
				break
			}
			w.mergeResults(&all, w.reinspect(ctx, f.list, links))
		}
	}
	if len(fix) > 0 {
		bounded, cancel := context.WithTimeout(ctx, actionTime)
		w.mergeResults(&all, checks.Apply(bounded, w.Host, checks.Run, fix, func(was checks.Result, made []checks.Change) {
			w.reportWrite(report.Made(was, made))
		}))
		cancel()
	}
	asking, done := context.WithTimeout(ctx, actionTime) // one timeout for all of them: a systemd that does not respond must not hang the loop
	for _, c := range fix {
		w.recordTried(asking, all, c.Name(), now)
	}
	done()
	w.announceAll(all.Results, now)
	w.endFights(now)
	w.keepUnreached(all.Results, now)
	first := false
	w.updateStatus(func(s *Status) {
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

// recordTried records the attempt to correct a requirement, whose result is in all, and reports a fight that begins with it. The reason
// of a failed attempt is reported even if the requirement is known to fail, but not again for each further attempt.
func (w *Watcher) recordTried(ctx context.Context, all checks.Outcome, name string, now time.Time) {
	i := slices.IndexFunc(all.Results, func(r checks.Result) bool { return r.Name == name })
	res := all.Results[i]
	if !res.Fixed && res.Err == nil && !res.Differs() {
		return // the requirement passed before anything was written
	}
	begins, news := w.fights.recordAttempt(name, now, !res.Fixed)
	if news {
		delete(w.verdicts, name)
	}
	if begins {
		w.reportFight(ctx, name)
	}
}

// failingLinks returns the link requirements that fail in the report, if drift is not "" only those with this drift. They are corrected
// link by link, so that a fight over one link does not affect the others.
func (w *Watcher) failingLinks(found checks.Outcome, drift policy.Drift) []setting.Link {
	var all []setting.Link
	for _, l := range w.links {
		if (drift == "" || l.Metadata().Drift == drift) && slices.ContainsFunc(found.Results, func(r checks.Result) bool {
			return r.Name == l.Name() && r.Differs()
		}) {
			all = append(all, l)
		}
	}
	return all
}

// reinspect inspects the link requirements again.
func (w *Watcher) reinspect(ctx context.Context, list []checks.Check, links []setting.Link) checks.Outcome {
	ctx, cancel := context.WithTimeout(ctx, actionTime)
	defer cancel()
	return checks.Inspect(ctx, w.Host, checks.Run, slices.DeleteFunc(slices.Clone(list), func(c checks.Check) bool {
		return !slices.ContainsFunc(links, func(l setting.Link) bool { return l.Name() == c.Name() })
	}))
}

// mergeResults replaces results with those from after the correction.
func (w *Watcher) mergeResults(before *checks.Outcome, after checks.Outcome) {
	for _, res := range after.Results {
		if i := slices.IndexFunc(before.Results, func(r checks.Result) bool { return r.Name == res.Name }); i >= 0 {
			before.Results[i] = res
		}
	}
}

// announceAll records the corrections of a round and announces its results. Checks that were not reached in time are named in one
// line: nothing new is known about them.
func (w *Watcher) announceAll(results []checks.Result, now time.Time) {
	var late []string
	for _, res := range results {
		if report.NotReached(res.Err) {
			late = append(late, res.Name)
			continue
		}
		if res.Fixed {
			w.recordCorrection(report.Correction{Time: now, Name: res.Name, Was: res.Was, Now: res.State.Got})
		}
		w.announce(res)
	}
	if late != nil && !w.late {
		w.reportTrouble(report.Count(len(late), "check") + " not reached in time: " + strings.Join(late, ", "))
	}
	w.late = late != nil
}

// reached is the last result of a check, with the number of rounds since that did not reach the check.
type reached struct {
	result checks.Result
	at     time.Time
	missed int
}

// keepUnreached gives each check that a round did not reach its last result, with its age, for three rounds.
func (w *Watcher) keepUnreached(results []checks.Result, now time.Time) {
	before := w.reached
	w.reached = map[string]reached{}
	for i, res := range results {
		last, known := before[res.Name]
		if !report.NotReached(res.Err) {
			last = reached{result: res, at: now}
		} else if last.missed++; !known || last.missed > 3 {
			continue
		} else {
			results[i] = last.result
			results[i].State.Got += fmt.Sprintf(" (%s ago)", now.Sub(last.at).Round(time.Second))
		}
		w.reached[res.Name] = last
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

// reportFight reports a fight once, with the most likely writer of the other value. It queries systemd for the writer until ctx ends.
func (w *Watcher) reportFight(ctx context.Context, key string) {
	b := w.fights[key]
	f := report.Fight{Name: key, Since: b.since, Next: b.next, Writer: writers.LikelyWriter(ctx, w.Host, w.policy, key)}
	w.updateStatus(func(s *Status) { s.Fights = append(s.Fights, f) })
	w.dirty = true
	if w.Fighting != nil {
		w.Fighting(f, false)
	}
}

// endFights removes the fights that are over, and updates the pauses of the others.
func (w *Watcher) endFights(now time.Time) {
	ended := w.fights.takeEnded(now)
	var over []report.Fight
	w.updateStatus(func(s *Status) {
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
