package settle

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"nodegate/internal/audit/proxy"
	"nodegate/internal/verdict"
)

// suspect is a Service port whose rules agree with no version of the API since the list.
type suspect struct {
	port  proxy.ServicePort
	first proxy.Finding
	since time.Time // time since which the rules are unchanged
	state string    // state of the rules
}

// compare adds suspects for the differences from the API and for the findings of the rules alone.
// Service ports with such a finding are not compared until it is gone.
func (l *loop) compare(now time.Time) {
	suspected := map[proxy.ServicePort]bool{}
	for _, s := range l.suspects {
		suspected[s.port] = true
	}
	with := l.facts()
	with.Endpoints, with.Services = l.versions.Endpoints, l.versions.Services
	differ := proxy.Compare(&l.latest, with)
	for _, f := range slices.Concat(differ, l.latest.Findings) {
		if p := proxy.PortOf(&f); f.Service != "" && f.Explains() && !suspected[p] {
			suspected[p] = true
			l.suspects = append(l.suspects, &suspect{port: p, first: f, since: now, state: l.latest.State(p)})
		}
	}
}

// updateAlone updates the findings of the rules alone after another reading. If a Service port has lost
// its finding, its rules were repaired and its time starts again. If a finding without a Service
// (such as one about a table) is gone, more Services may become comparable.
func (l *loop) updateAlone(now time.Time) {
	before, shown, more := l.alone, l.shown, false
	l.alone = keepRepeated(before, l.latest.Findings)
	l.damaged, l.shown = l.latest.Broken(), candidatePorts(l.alone)
	for _, s := range l.suspects {
		if shown[s.port] && !l.shown[s.port] {
			s.since = now
		}
	}
	for _, h := range before {
		more = more || h.last.Service == "" && !slices.Contains(l.alone, h)
	}
	if more && l.versions != nil {
		l.compare(now)
	}
}

// isDamaged reports whether the latest rules of a Service port are damaged, or its family has none.
func (l *loop) isDamaged(p proxy.ServicePort) bool {
	return l.damaged[p] || !l.latest.Families[p.Family]
}

// isExplained reports whether the rules of a suspect now agree with some version of the API.
func (l *loop) isExplained(s *suspect, now time.Time) bool {
	if l.isDamaged(s.port) {
		return false
	}
	if l.versions.Explain(&l.latest, s.port, l.facts()) {
		l.out.Converged++
		return true
	}
	if state := l.latest.State(s.port); state != s.state {
		s.since, s.state = now, state // kube-proxy is writing rules
	}
	return false
}

// isSettled reports whether a suspect has been unchanged for long enough.
func (l *loop) isSettled(s *suspect, now time.Time) bool {
	took := now.Sub(s.since)
	w := l.writings[s.port.Family]
	return took >= l.opts.Settle && (w == nil || w.isComplete(s.since.Add(l.opts.Settle), now) || took >= stuckWrite)
}

// judgeSuspects converts the suspects into findings. Before it reports stale rules, it lists the API again
// without caches: the watch may have been old or silent, and the rules correct.
func (l *loop) judgeSuspects(ctx context.Context, now time.Time) {
	var settled []*suspect
	for _, s := range l.suspects {
		switch {
		case l.shown[s.port]: // already a finding
		case l.isSettled(s, now):
			settled = append(settled, s)
		case l.broken != nil:
			l.addUnsettled(s, now, fmt.Sprintf("the watch of the API failed: %v", l.broken))
		default:
			l.addUnsettled(s, now, "the audit timed out"+l.writer.Describe())
		}
	}
	if len(settled) == 0 {
		return
	}
	latest, err := l.api.List(ctx, true)
	if err == nil {
		l.wait(ctx, 2*time.Second, func() bool {
			return !slices.ContainsFunc(settled, func(s *suspect) bool { return !l.versions.HadVersion(latest, s.port) })
		})
	}
	for _, s := range settled {
		if err != nil {
			l.addUnsettled(s, now, fmt.Sprintf("listing the API again failed: %v", err))
			continue
		}
		knew, differ := l.versions.HadVersion(latest, s.port), latest.Differences(&l.latest, s.port, l.facts())
		l.out.Behind = l.out.Behind || !knew
		switch {
		case len(differ) == 0 && l.isDamaged(s.port):
			l.addUnsettled(s, now, "another fault has appeared, which must persist before it is reported")
		case len(differ) == 0:
			l.out.Converged++
		case knew:
			l.addStale(s, now, differ[0])
		default:
			l.addUnsettled(s, now, "the API's watch lags behind its list")
		}
	}
}

// addStale adds a finding for a suspect. f describes the difference between its rules and the API's current state.
func (l *loop) addStale(s *suspect, now time.Time, f proxy.Finding) {
	if f.Name == "kubeproxy.truth.service-missing" && l.hasEmptyTable(s.port.Family) {
		return
	}
	f.Message += fmt.Sprintf("; seen since %s (%s) in %d readings, after %s of the Service in the API",
		s.since.Format(time.TimeOnly), seconds(now.Sub(s.since)), l.looks, count(l.changes[s.port.Service()], "change"))
	l.found = append(l.found, f)
	l.out.Stale = true
}

// hasEmptyTable reports whether a finding already says that a table of the family is empty. Then a
// missing Service needs no finding of its own.
func (l *loop) hasEmptyTable(family string) bool {
	return slices.ContainsFunc(l.found, func(f proxy.Finding) bool {
		return f.Family == family && (f.Name == "kubeproxy.table.flushed" || f.Name == "kubeproxy.table.unwritten")
	})
}

func (l *loop) addUnsettled(s *suspect, now time.Time, why string) {
	seen := s.first.Message
	if differ := l.versions.Differences(&l.latest, s.port, l.facts()); len(differ) > 0 {
		seen = differ[0].Message
	}
	l.found = append(l.found, proxy.NewFinding(proxy.Finding{Name: "kubeproxy.truth.unsettled", Service: s.port.Name,
		Family: s.port.Family, Message: fmt.Sprintf("%s; unchanged for %s, but %s", seen, seconds(now.Sub(s.since)), why)}))
}

// candidate is a finding that must persist before it is reported.
type candidate struct {
	last  proxy.Finding
	since time.Time
	needs time.Duration // which it must persist
	looks int
}

// candidatePorts returns the Service ports whose difference from the API the findings explain.
func candidatePorts(list []*candidate) map[proxy.ServicePort]bool {
	about := map[proxy.ServicePort]bool{}
	for _, h := range list {
		if h.last.Explains() {
			about[proxy.PortOf(&h.last)] = true
		}
	}
	return about
}

func newCandidates(findings []proxy.Finding, now time.Time, needs time.Duration) []*candidate {
	var list []*candidate
	for _, f := range findings {
		list = append(list, &candidate{last: f, since: now, needs: needs, looks: 1})
	}
	return list
}

// keepRepeated keeps the findings that are found again, each in its current form.
func keepRepeated(list []*candidate, findings []proxy.Finding) []*candidate {
	again := map[string][]proxy.Finding{}
	for _, f := range findings {
		again[identity(&f)] = append(again[identity(&f)], f)
	}
	var kept []*candidate
	for _, h := range list {
		if key := identity(&h.last); len(again[key]) > 0 {
			h.last, again[key] = again[key][0], again[key][1:]
			h.looks++
			kept = append(kept, h)
		}
	}
	return kept
}

// identity returns a key that is equal for the same finding in two readings, whatever its line.
func identity(f *proxy.Finding) string {
	return strings.Join([]string{f.Name, f.Service, f.Family, f.Table, f.Chain}, " ")
}

// markUncertain makes a finding unknown, because kube-proxy may just be writing the rules. Its remedy must not restart anything.
func markUncertain(f *proxy.Finding, why string) {
	f.Verdict, f.Remedy = verdict.Unknown, "run the audit again with a longer --timeout"
	if f.Message += why; f.Means != "" {
		f.Means = "uncertain: " + f.Means
	}
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
