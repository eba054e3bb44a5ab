package settle

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"nodegate/internal/proxyrules"
	"nodegate/internal/verdict"
)

// suspect is a Service port whose rules have not agreed with anything that the API had since the list.
type suspect struct {
	port  proxyrules.ServicePort
	first proxyrules.Finding
	since time.Time // the rules have been as they are
	state string    // of the rules
}

// Converged is a Service port that differed from the API and no longer does.
type Converged struct {
	Service string  `json:"service"`
	Family  string  `json:"family"`
	After   float64 `json:"afterSeconds"`
}

// compare suspects what differs from the API, and what the rules alone show something of: that is not compared before it is mended.
func (l *loop) compare(now time.Time) {
	suspected := map[proxyrules.ServicePort]bool{}
	for _, s := range l.suspects {
		suspected[s.port] = true
	}
	differ := proxyrules.Compare(&l.latest, proxyrules.Options{
		Endpoints: l.versions.Endpoints, Services: l.versions.Services, NodeName: l.opts.Node, Zone: l.opts.Zone,
	})
	for _, f := range slices.Concat(differ, l.latest.Findings) {
		if p := proxyrules.PortOf(&f); f.Service != "" && !suspected[p] {
			suspected[p] = true
			l.suspects = append(l.suspects, &suspect{port: p, first: f, since: now, state: l.latest.State(p)})
		}
	}
}

// again looks at what the rules alone show after another reading. Of what they no longer show, the rules have been mended: their time
// begins. Where that was of no Service, of a table say, there may be more now to compare.
func (l *loop) again(now time.Time) {
	before, shown, more := l.alone, l.shown, false
	l.alone = still(before, l.latest.Findings)
	l.damaged, l.shown = l.latest.Broken(), ports(l.alone)
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

// explained reports whether a suspect is none: the rules agree with some version that the API had.
func (l *loop) explained(s *suspect, now time.Time) bool {
	if l.damaged[s.port] {
		return false
	}
	if l.versions.Explain(&l.latest, s.port, l.opts.Node, l.opts.Zone) {
		l.out.Converged = append(l.out.Converged, Converged{s.port.Name, s.port.Family, now.Sub(l.began).Seconds()})
		return true
	}
	if state := l.latest.State(s.port); state != s.state {
		s.since, s.state = now, state // kube-proxy is at work
	}
	return false
}

// settled reports whether a suspect has been the same for long enough.
func (l *loop) settled(s *suspect, now time.Time) bool {
	took := now.Sub(s.since)
	w := l.writings[s.port.Family]
	return took >= l.opts.Settle && (w == nil || w.done(s.since.Add(l.opts.Settle), now) || took >= stuckWrite)
}

// judge makes findings of the suspects. Before anything is called stale, the API is asked once more, past every cache: its
// watch may have been old, or silent, and the rules right.
func (l *loop) judge(ctx context.Context, now time.Time) {
	var settled []*suspect
	for _, s := range l.suspects {
		switch {
		case l.shown[s.port]: // a finding already
		case l.settled(s, now):
			settled = append(settled, s)
		case l.broken != nil:
			l.unsettled(s, now, fmt.Sprintf("and the API can no longer be followed: %v", l.broken))
		default:
			l.unsettled(s, now, "when the time of the audit ended"+l.writer.Says())
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
			l.unsettled(s, now, fmt.Sprintf("but the API does not confirm it: %v", err))
			continue
		}
		knew, differ := l.versions.HadVersion(latest, s.port), latest.Differences(&l.latest, s.port, l.opts.Node, l.opts.Zone)
		l.out.Behind = l.out.Behind || !knew
		switch {
		case len(differ) == 0 && l.damaged[s.port]:
			l.unsettled(s, now, "and another thing is wrong with it since, which has to last before it is said")
		case len(differ) == 0:
			l.out.Converged = append(l.out.Converged, Converged{s.port.Name, s.port.Family, now.Sub(l.began).Seconds()})
		case knew:
			l.stale(s, now, differ[0])
		default:
			l.unsettled(s, now, "but the API's watch is behind its list")
		}
	}
}

// stale makes a finding of a suspect: f, how its rules differ from what the API has now, and since when.
func (l *loop) stale(s *suspect, now time.Time, f proxyrules.Finding) {
	if f.Name == "kubeproxy.truth.service-missing" && l.emptied(s.port.Family) {
		return
	}
	f.Message += fmt.Sprintf("; so since %s (%s ago), in each of %d looks, through %s of this Service in the API",
		s.since.Format(time.TimeOnly), seconds(now.Sub(s.since)), l.looks, count(l.changes[s.port.Service()], "change"))
	l.found = append(l.found, f)
	l.out.Stale = true
}

// emptied reports whether a table of a family has no rule of kube-proxy, which is said: that it serves no Service needs no more findings.
func (l *loop) emptied(family string) bool {
	return slices.ContainsFunc(l.found, func(f proxyrules.Finding) bool {
		return f.Family == family && (f.Name == "kubeproxy.table.flushed" || f.Name == "kubeproxy.table.unwritten")
	})
}

func (l *loop) unsettled(s *suspect, now time.Time, why string) {
	seen := s.first.Message
	if differ := l.versions.Differences(&l.latest, s.port, l.opts.Node, l.opts.Zone); len(differ) > 0 {
		seen = differ[0].Message
	}
	out := proxyrules.NewCollector()
	out.Add(proxyrules.Finding{Name: "kubeproxy.truth.unsettled", Service: s.port.Name, Family: s.port.Family,
		Message: fmt.Sprintf("%s; the same for %s, %s", seen, seconds(now.Sub(s.since)), why)})
	l.found = append(l.found, out.List...)
}

// held is a finding that must last, or is none.
type held struct {
	last  proxyrules.Finding
	since time.Time
	looks int
}

// ports returns the Service ports that findings are about.
func ports(list []*held) map[proxyrules.ServicePort]bool {
	about := map[proxyrules.ServicePort]bool{}
	for _, h := range list {
		about[proxyrules.PortOf(&h.last)] = true
	}
	return about
}

func hold(findings []proxyrules.Finding, now time.Time) []*held {
	var list []*held
	for _, f := range findings {
		list = append(list, &held{last: f, since: now, looks: 1})
	}
	return list
}

// still keeps what is found again, each as it is now.
func still(list []*held, findings []proxyrules.Finding) []*held {
	again := map[string]proxyrules.Finding{}
	for _, f := range findings {
		again[identity(&f)] = f
	}
	var kept []*held
	for _, h := range list {
		if f, ok := again[identity(&h.last)]; ok {
			h.last = f
			h.looks++
			kept = append(kept, h)
		}
	}
	return kept
}

// identity is the same for a finding in two readings, whatever its line.
func identity(f *proxyrules.Finding) string {
	return strings.Join([]string{f.Name, f.Service, f.Family, f.Table, f.Chain}, " ")
}

// lasts reports whether what the rules alone show has been there for so long that nobody was just writing them.
func (l *loop) lasts(h *held) bool {
	needs := tornTime
	if l.opts.Patient {
		needs = max(needs, l.opts.Settle)
	}
	return l.looked.Sub(h.since) >= needs
}

// doubt makes a finding of rules that may just be written: nobody restarts anything for it.
func doubt(f *proxyrules.Finding, why string) {
	f.Verdict, f.Remedy = verdict.Unknown, "audit again, with a longer --timeout"
	if f.Message += why; f.Means != "" {
		f.Means = "not certain: " + f.Means
	}
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
