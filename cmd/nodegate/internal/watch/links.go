package watch

import (
	"context"
	"maps"
	"slices"
	"time"

	"nodegate/checks/setting"
	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/host"
	"nodegate/policy"
)

// knownLink is a link that a requirement could match.
type knownLink struct {
	name    string
	matches map[string]bool // by requirement: whether the link matches it; a link's driver does not change
	passed  map[string]bool // by requirement: whether this link has ever passed it
}

// handleEvent inspects the link of a notification. It returns true if the link could match a
// requirement that depends on the default route. Checking that needs a dump of all routes,
// so the caller does it later, once for many notifications.
func (w *Watcher) handleEvent(ctx context.Context, e host.LinkEvent) (routed bool) {
	w.updateStatus(func(s *Status) { s.LinkEvents++ })
	if e.Gone {
		delete(w.known, e.Link.Index)
		delete(w.present, e.Link.Index)
		return false
	}
	for _, r := range w.links {
		switch {
		case !r.MayMatch(e.Link):
		case r.Routed():
			routed = true
		default:
			w.reconcile(ctx, r, e.Link)
		}
	}
	return routed
}

func (w *Watcher) routedLinks() []setting.Link {
	var all []setting.Link
	for _, r := range w.links {
		if r.Routed() {
			all = append(all, r)
		}
	}
	return all
}

// resync inspects every link when the notifications start, for the first time or
// again. A difference on a link that existed at the first time is drift. A link that
// appeared while notifications were missed is new.
func (w *Watcher) resync(ctx context.Context, first bool) {
	bounded, cancel := context.WithTimeout(ctx, actionTime)
	links, err := w.Host.Links.List(bounded)
	cancel()
	if err != nil {
		w.reportTrouble(err.Error())
		return
	}
	gone, there := maps.Clone(w.known), map[int]bool{}
	for _, l := range links {
		delete(gone, l.Index)
		there[l.Index] = first || w.present[l.Index]
		if first {
			w.markPassed(l, w.reportedOnly(nil))
		}
	}
	for index := range gone {
		delete(w.known, index)
	}
	w.present = there
	w.reconcileAll(ctx, w.links, true)
}

// reportedOnly returns the requirements whose drift is not corrected, except those in former.
func (w *Watcher) reportedOnly(former []setting.Link) []setting.Link {
	return slices.DeleteFunc(slices.Clone(w.links), func(r setting.Link) bool {
		return r.Metadata().Drift == policy.Correct || slices.ContainsFunc(former, func(f setting.Link) bool {
			return f.Name() == r.Name() && f.Match == r.Match && f.Metadata().Drift == r.Metadata().Drift
		})
	})
}

// markPassed records that a link has passed the requirements. The link is not new to them, so a difference is drift.
func (w *Watcher) markPassed(l host.Link, requirements []setting.Link) {
	for _, r := range requirements {
		if r.MayMatch(l) {
			w.knownLink(l).passed[r.Name()] = true
		}
	}
}

// markExisting marks the links that are older than the new requirements of a policy as passed. If a requirement is new because of a
// fact, only the links from the start count as older: a CNI may create its link before watch knows which CNI it is. A fact is the
// cause if the policy files were not reread, or if the former policy had the requirement but could not apply it.
func (w *Watcher) markExisting(ctx context.Context, former *policy.Policy, reread bool) {
	brought := w.reportedOnly(setting.Links(former))
	if len(brought) == 0 {
		return
	}
	written := slices.DeleteFunc(slices.Clone(brought), func(r setting.Link) bool {
		return !reread || slices.ContainsFunc(former.Links, func(l policy.Link) bool { return l.Name == r.Link.Name && !l.Applies() })
	})
	bounded, cancel := context.WithTimeout(ctx, actionTime)
	defer cancel()
	links, err := w.Host.Links.List(bounded)
	if err != nil {
		w.reportTrouble(err.Error())
	}
	for _, l := range links {
		if w.present[l.Index] {
			w.markPassed(l, brought)
		} else {
			w.markPassed(l, written)
		}
	}
}

// reconcileAll reconciles every link that one of the requirements matches, or only those that no notification has named yet. It
// returns whether there was such a link.
func (w *Watcher) reconcileAll(ctx context.Context, requirements []setting.Link, all bool) (appeared bool) {
	for _, r := range requirements {
		bounded, cancel := context.WithTimeout(ctx, actionTime)
		links, err := r.Matching(bounded, w.Host)
		cancel()
		if err != nil {
			w.reportTrouble(r.Name() + ": " + err.Error())
			continue
		}
		for _, l := range links {
			k := w.knownLink(l)
			_, asked := k.matches[r.Name()]
			if k.matches[r.Name()] = true; all || !asked {
				w.reconcile(ctx, r, l)
			}
			appeared = appeared || !asked
		}
	}
	return appeared
}

func (w *Watcher) knownLink(l host.Link) *knownLink {
	k := w.known[l.Index]
	if k == nil || k.name != l.Name {
		k = &knownLink{name: l.Name, matches: map[string]bool{}, passed: map[string]bool{}}
		w.known[l.Index] = k
	}
	return k
}

// reconcile makes one link pass one requirement, reads it back, and reports the
// correction.
func (w *Watcher) reconcile(ctx context.Context, r setting.Link, l host.Link) {
	ctx, cancel := context.WithTimeout(ctx, actionTime)
	defer cancel()
	k := w.knownLink(l)
	matches, asked := k.matches[r.Name()]
	if !asked {
		var err error
		if matches, err = r.Matches(ctx, w.Host, l); err != nil {
			w.reportTrouble(r.Name() + ": " + err.Error())
			return
		}
		k.matches[r.Name()] = matches
	}
	if !matches {
		return
	}
	appeared := !k.passed[r.Name()]
	key, now := r.Name()+" of "+l.Name, time.Now()
	resets := appeared && w.present != nil && !w.present[l.Index]
	s, err := r.Reconcile(ctx, w.Host, l, appeared, resets, func() bool {
		return (appeared || r.Metadata().Drift == policy.Correct) && w.BreakGlass() == "" && w.fights.mayCorrect(key, now)
	})
	if len(s.Made) > 0 && (w.present == nil || w.present[l.Index]) {
		w.reportWrite(report.NewAppliedChange(now, r.Name()+" of "+l.Name, s.Was, r.Want(), s.Made))
	}
	k.passed[r.Name()] = k.passed[r.Name()] || err == nil && s.Was == "" || s.Set && err == nil && s.Still == ""
	failed := ""
	switch {
	case err != nil:
		failed = r.Name() + ": " + err.Error()
	case s.Still != "":
		failed = r.Name() + ": " + l.Name + " was set but still differs: " + s.Still
	case s.Set:
		w.recordCorrection(report.Correction{Time: now, Name: r.Name(), Link: l.Name, New: appeared, Was: s.Was, Now: r.Want()})
	}
	// The first setting of a new link is not drift. Every later attempt counts, so
	// that watch does not keep setting a link that never passes.
	begins, news := false, true
	if s.Set && (!appeared || !k.passed[r.Name()]) {
		begins, news = w.fights.recordAttempt(key, now, failed != "")
	}
	if failed != "" && news {
		w.reportTrouble(failed)
	}
	if begins {
		w.reportFight(ctx, key)
	}
}
