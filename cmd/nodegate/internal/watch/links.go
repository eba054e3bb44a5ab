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

// knownLink is a link, by its index, that a requirement could match.
type knownLink struct {
	name    string
	matches map[string]bool // requirement -> whether the link matches it; a driver does not change
	passed  map[string]bool // requirement -> whether this link ever passed it
}

// event inspects the one link that a notice is about. It returns true where a
// requirement could match that depends on the default route: that costs a dump of
// all routes, and is done later, once for many notices.
func (w *Watcher) event(ctx context.Context, e host.LinkEvent) (routed bool) {
	w.change(func(s *Status) { s.LinkEvents++ })
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

func (w *Watcher) routed() []setting.LinkRequirement {
	var all []setting.LinkRequirement
	for _, r := range w.links {
		if r.Routed() {
			all = append(all, r)
		}
	}
	return all
}

// resync inspects every link when the notices about them begin, for the first time
// or again. A difference on a link that existed at the first time is drift; a link
// that came while notices were missed is new.
func (w *Watcher) resync(ctx context.Context, first bool) {
	bounded, cancel := context.WithTimeout(ctx, actionTime)
	links, err := w.Host.Links.List(bounded)
	cancel()
	if err != nil {
		w.trouble(err.Error())
		return
	}
	gone, there := maps.Clone(w.known), map[int]bool{}
	for _, l := range links {
		delete(gone, l.Index)
		there[l.Index] = first || w.present[l.Index]
		if first {
			w.leave(l, w.reported(nil))
		}
	}
	for index := range gone {
		delete(w.known, index)
	}
	w.present = there
	w.reconcileAll(ctx, w.links)
}

// reported returns the requirements whose drift is not corrected, but for those that former has.
func (w *Watcher) reported(former []setting.LinkRequirement) []setting.LinkRequirement {
	return slices.DeleteFunc(slices.Clone(w.links), func(r setting.LinkRequirement) bool {
		return r.Metadata().Drift == policy.Correct || slices.ContainsFunc(former, func(f setting.LinkRequirement) bool {
			return f.Name() == r.Name() && f.Match == r.Match && f.Metadata().Drift == r.Metadata().Drift
		})
	})
}

// leave takes a link for one that has passed the requirements: it is not new to them, and how it differs is drift.
func (w *Watcher) leave(l host.Link, requirements []setting.LinkRequirement) {
	for _, r := range requirements {
		if r.MayMatch(l) {
			w.know(l).passed[r.Name()] = true
		}
	}
}

// leaveThere does so with the links that are older than the requirements that a policy has brought. Where it is the facts that brought
// one, those are the links from the beginning: a CNI may make its link before watch knows which CNI it is. That is so where nobody
// reread the policy, and of what the former one had, too, but could not apply.
func (w *Watcher) leaveThere(ctx context.Context, former *policy.Policy, reread bool) {
	brought := w.reported(setting.LinkRequirements(former))
	if len(brought) == 0 {
		return
	}
	written := slices.DeleteFunc(slices.Clone(brought), func(r setting.LinkRequirement) bool {
		return !reread || slices.ContainsFunc(former.Links, func(l policy.Link) bool { return l.Name == r.Link.Name && !l.Applies() })
	})
	bounded, cancel := context.WithTimeout(ctx, actionTime)
	defer cancel()
	links, err := w.Host.Links.List(bounded)
	if err != nil {
		w.trouble(err.Error())
	}
	for _, l := range links {
		if w.present[l.Index] {
			w.leave(l, brought)
		} else {
			w.leave(l, written)
		}
	}
}

// reconcileAll reconciles every link that one of the requirements matches.
func (w *Watcher) reconcileAll(ctx context.Context, requirements []setting.LinkRequirement) {
	for _, r := range requirements {
		bounded, cancel := context.WithTimeout(ctx, actionTime)
		links, err := r.Matching(bounded, w.Host)
		cancel()
		if err != nil {
			w.trouble(r.Name() + ": " + err.Error())
			continue
		}
		for _, l := range links {
			k := w.know(l)
			k.matches[r.Name()] = true
			w.reconcile(ctx, r, l)
		}
	}
}

func (w *Watcher) know(l host.Link) *knownLink {
	k := w.known[l.Index]
	if k == nil || k.name != l.Name {
		k = &knownLink{name: l.Name, matches: map[string]bool{}, passed: map[string]bool{}}
		w.known[l.Index] = k
	}
	return k
}

// reconcile makes one link what one requirement asks for, reads it back, and reports
// what it did.
func (w *Watcher) reconcile(ctx context.Context, r setting.LinkRequirement, l host.Link) {
	ctx, cancel := context.WithTimeout(ctx, actionTime)
	defer cancel()
	k := w.know(l)
	matches, asked := k.matches[r.Name()]
	if !asked {
		var err error
		if matches, err = r.Matches(ctx, w.Host, l); err != nil {
			w.trouble(r.Name() + ": " + err.Error())
			return
		}
		k.matches[r.Name()] = matches
	}
	if !matches {
		return
	}
	appeared := !k.passed[r.Name()]
	key, now := r.Name()+" of "+l.Name, time.Now()
	s, err := r.Reconcile(ctx, w.Host, l, appeared, func() bool {
		return (appeared || r.Metadata().Drift == policy.Correct) && w.BreakGlass() == "" && w.fights.may(key, now)
	})
	if len(s.Made) > 0 && (w.present == nil || w.present[l.Index]) {
		w.wrote(report.NewAppliedChange(now, r.Name()+" of "+l.Name, s.Was, r.Want(), s.Made))
	}
	k.passed[r.Name()] = k.passed[r.Name()] || err == nil && s.Was == "" || s.Set && err == nil && s.Still == ""
	failed := ""
	switch {
	case err != nil:
		failed = r.Name() + ": " + err.Error()
	case s.Still != "":
		failed = r.Name() + ": " + l.Name + " was set, and still differs: " + s.Still
	case s.Set:
		w.corrected(report.Correction{Time: now, Name: r.Name(), Link: l.Name, New: appeared, Was: s.Was, Now: r.Want()})
	}
	// The first setting of a new link is nobody's fault; whatever follows counts, so
	// that watch does not set a stubborn link for ever.
	begins, news := false, true
	if s.Set && (!appeared || !k.passed[r.Name()]) {
		begins, news = w.fights.note(key, now, failed != "")
	}
	if failed != "" && news {
		w.trouble(failed)
	}
	if begins {
		w.fight(ctx, key)
	}
}
