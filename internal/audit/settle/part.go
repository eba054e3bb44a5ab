package settle

import (
	"context"
	"maps"
	"slices"
	"time"

	"nodegate/internal/audit/proxy"
)

// PartReader is a FollowedNode that can read the rules of some Services alone.
type PartReader interface {
	// RulesOf reads and judges the rules of some Services (ns/name). Its result equals the result
	// of RuleReader.Rules, as far as these Services are concerned.
	RulesOf(ctx context.Context, services []string) (proxy.Judgment, error)
}

// Suspected is a Service port whose rules have differed from every state of the API for the settle
// time.
type Suspected struct {
	Port  proxy.ServicePort
	Since time.Time
	State string // of the rules, unchanged since
	Looks int
}

const (
	partSize = 64 // maximum number of Services in one part
	// partShare limits the parts to half of the budget, so that they leave time for whole readings.
	partShare = 2 * share
	partPause = time.Second / 2 // minimum time between two readings of a part
)

// parts is the state of the partial rounds.
type parts struct {
	able  bool        // the rules can be read in parts
	rest  time.Time   // no partial round before this time
	proof bool        // a whole round is necessary
	known []Suspected // of the last partial round

	// Suspects of the last whole round that partial rounds check, with the state of their rules.
	handed map[proxy.ServicePort]string
}

// nextPart returns the time of the next partial round, or the zero time if none is due.
func (k *follower) nextPart() time.Time {
	first, relisted, unanswered := k.feed.pendingPart()
	if !k.parts.able || first.IsZero() || relisted || unanswered != nil || k.kept.Unanswered != nil || k.kept.Unread != nil {
		return time.Time{}
	}
	at := first.Add(quiet)
	if at.Before(k.parts.rest) {
		return k.parts.rest
	}
	return at
}

// runPart makes a round over the Services that changed in the API: it reads only their rules. If
// something is wrong with them, a whole round must prove it.
func (k *follower) runPart(ctx context.Context) {
	settle := k.opts.Settle()
	bounded, cancel := context.WithTimeout(ctx, settle+roundTime)
	defer cancel()
	now, names, changed := k.feed.beginPart(partSize)
	defer k.feed.endRound()
	began, spent := time.Now(), k.node.Spent()
	read := &partOf{RuleReader: k.node, part: k.node.(PartReader), services: names}
	opts := Options{Settle: settle, Patient: true, part: read, Node: k.opts.Node, Zone: k.opts.Zone}
	out, err := settleRules(bounded, read, k.feed, now, opts)
	if ctx.Err() != nil {
		return
	}
	used, ended := k.node.Spent()-spent, time.Now()
	k.parts.rest = ended.Add(min(used*partShare, k.opts.Every))
	if rest := ended.Add(k.budget.recordUse(used, ended)); rest.After(k.rest) {
		k.rest = rest
	}
	k.kept.Changes += len(changed)
	if err != nil {
		k.parts.able, k.parts.proof = false, true
		return
	}
	for _, s := range out.Suspected {
		delete(changed, s.Port.Service())
		delete(k.parts.handed, s.Port)
	}
	maps.DeleteFunc(k.parts.handed, func(p proxy.ServicePort, state string) bool { // kube-proxy has written its rules
		return slices.Contains(names, p.Service()) && read.found.State(p) != state
	})
	out.Report.Services = read.found.Services
	k.kept.Delay.add(changed, out, began, read.first)
	out.Suspected = slices.DeleteFunc(out.Suspected, func(s Suspected) bool { return k.reports(s.Port) })
	if len(out.Suspected) > 0 || len(out.Report.Findings) > 0 {
		k.parts.proof, k.parts.known = true, nil
		if k.budget.mayOwe() { // at once: the part's result is still true
			k.rest, k.parts.known = time.Time{}, out.Suspected
		}
	}
}

// reports reports whether the last whole round has a finding about a Service port.
func (k *follower) reports(p proxy.ServicePort) bool {
	return slices.ContainsFunc(k.kept.Findings, func(f proxy.Finding) bool { return proxy.PortOf(&f) == p })
}

// partOf reads the rules of some Services.
type partOf struct {
	RuleReader
	part     PartReader
	services []string
	first    time.Time      // end of the first reading
	found    proxy.Judgment // of the first reading
}

// Rules reads the rules of the Services. A reading is cheap, but querying kube-proxy before it is
// not.
func (p *partOf) Rules(ctx context.Context) (proxy.Judgment, error) {
	if !p.first.IsZero() && !sleep(ctx, partPause) {
		return proxy.Judgment{}, ctx.Err()
	}
	rep, err := p.part.RulesOf(ctx, p.services)
	if p.first.IsZero() {
		p.first, p.found = time.Now(), rep
	}
	return rep, err
}

// openServices returns the Services that another reading of a part must include.
func (l *loop) openServices() []string {
	var services []string
	for _, s := range l.suspects {
		services = append(services, s.port.Service())
	}
	for _, h := range l.alone {
		p := proxy.PortOf(&h.last)
		services = append(services, p.Service())
	}
	slices.Sort(services)
	return slices.Compact(services)
}

// Proxy returns nothing: the looks check kube-proxy.
func (p *partOf) Proxy(context.Context) []proxy.Finding { return nil }

// pendingPart returns the time of the first change since the last round, or of the first suspect that
// was handed over. relisted reports whether the API has been listed again since then.
func (f *feed) pendingPart() (first time.Time, relisted bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, list := range []map[string]time.Time{f.changed, f.handed} {
		for _, at := range list {
			if first.IsZero() || at.Before(first) {
				first = at
			}
		}
	}
	return first, !f.relisted.IsZero(), f.err
}

// beginPart starts a round over at most n Services: first those that were handed over, then those
// that changed first. The caller must call endRound.
func (f *feed) beginPart(n int) (now *proxy.Versions, services []string, changed map[string]time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	services = slices.Collect(maps.Keys(f.handed))
	for _, name := range slices.SortedFunc(maps.Keys(f.changed), func(a, b string) int { return f.changed[a].Compare(f.changed[b]) }) {
		if _, both := f.handed[name]; !both {
			services = append(services, name)
		}
	}
	services = services[:min(n, len(services))]
	slices.Sort(services)
	changed = map[string]time.Time{}
	for _, name := range services {
		if at, ok := f.changed[name]; ok {
			changed[name] = at
		}
		delete(f.changed, name)
		delete(f.handed, name)
	}
	f.log, f.rounds = nil, true
	return f.now.Of(services), services, changed
}

// since returns the time since which the rules of a Service port are known to be in a state.
func (o *Options) since(p proxy.ServicePort, state string, now time.Time) time.Time {
	for _, k := range o.known {
		if k.Port == p && k.State == state {
			return k.Since
		}
	}
	return now
}

// knownLooks returns the number of readings that found the known suspects.
func (o *Options) knownLooks() int {
	n := 0
	for _, k := range o.known {
		n = max(n, k.Looks)
	}
	return n
}

// handOver returns the function that hands suspects of a whole round over to partial rounds, which
// wait for kube-proxy at less cost. A suspect that the last whole round handed over and that is still
// in the same state remains with the whole round, because parts may not show its fault.
// So does one that is reported already, because its finding ends with the round that lacks it.
func (k *follower) handOver() func(proxy.ServicePort, string) bool {
	before := k.parts.handed
	k.parts.handed = nil
	if !k.parts.able {
		return nil
	}
	handed := map[proxy.ServicePort]string{}
	k.parts.handed = handed
	return func(p proxy.ServicePort, state string) bool {
		if was, again := before[p]; again && was == state || k.reports(p) {
			return false
		}
		handed[p] = state
		return true
	}
}

// putBack makes the Services that were handed over part of the next partial round, and moves them
// from changed to its changes.
func (k *follower) putBack(changed map[string]time.Time) {
	k.feed.mu.Lock()
	defer k.feed.mu.Unlock()
	k.feed.handed = map[string]time.Time{}
	for p := range k.parts.handed {
		service := p.Service()
		k.feed.handed[service] = time.Now()
		if at, ok := changed[service]; ok {
			k.feed.changed[service] = at
			delete(changed, service)
		}
	}
}

// handOverSuspects removes the suspects that the readings of a part check from now on.
func (l *loop) handOverSuspects() {
	if l.opts.handOver == nil {
		return
	}
	now := time.Now()
	open := func(s *suspect) bool { return !l.shown[s.port] && !l.isSettled(s, now) }
	n := 0
	for _, s := range l.suspects {
		if open(s) {
			n++
		}
	}
	if n > partSize {
		return // kube-proxy has not written many rules, and reading them in parts costs more than reading all
	}
	l.suspects = slices.DeleteFunc(l.suspects, func(s *suspect) bool { return open(s) && l.opts.handOver(s.port, s.state) })
}
