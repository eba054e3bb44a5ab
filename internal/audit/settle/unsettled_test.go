package settle_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"nodegate/internal/audit/proxy"
	"nodegate/internal/audit/settle"
	"nodegate/internal/require"
	"nodegate/internal/verdict"
)

const tableGone, half = "kubeproxy.table.flushed", "kubeproxy.chain.damaged"

// still is a cluster without changes in which the rules of one Service are stale. Its API may fail.
type still struct {
	*cluster
	watch, list error  // errors of Follow and of the second list
	behind      bool   // the watch misses a change that the list has
	gone        string // name of a finding about kube-proxy
	back        time.Duration
	field       bool          // a field other than the endpoints is stale
	writes      time.Duration // duration of one sync, after which the rules are correct
	waits       bool          // the process of the sync waits for something
	broken      time.Duration // for this time the rules alone show a fault of the stale Service
	torn        bool          // instead, the table being written has no rules until both syncs have ended
	flushed     bool          // no Service has rules
	unseen      bool          // the process of the sync cannot be observed
	later       bool          // the rules become stale only after broken is over
	another     bool          // from then on the Service has another fault
	moves       bool          // the API has changed since it was listed
	patient     bool
	lists       int           // number of lists
	slow        time.Duration // duration of each sync in kube-proxy's metrics, with continuous changes
	mends       bool          // the second of these syncs contains the change
	unused      bool          // the Service has a chain that no rule leads to
	other       time.Duration // for this time only the rules of another family exist
	vanish      time.Duration // after this time no rules exist
}

func (s *still) Written() map[string]settle.Written {
	if s.slow == 0 {
		return nil
	}
	ended := time.Since(s.began) / s.slow
	if s.mends && ended >= 2 {
		s.rules[s.names[0]] = s.shadow[s.names[0]]
	}
	return map[string]settle.Written{"ip": {At: s.began.Add(ended * s.slow), Queued: time.Now()}}
}

// Writer returns a process for each of two tables, one after the other.
func (s *still) Writer() settle.Writer {
	took := time.Since(s.began)
	switch {
	case s.writes == 0:
		return settle.Writer{}
	case took >= s.writes:
		s.rules[s.names[0]] = s.shadow[s.names[0]]
		return settle.Writer{}
	case s.unseen:
		return settle.Writer{}
	}
	w := settle.Writer{PID: 7, Runs: took}
	if half := s.writes / 2; took >= half {
		if w = (settle.Writer{PID: 8, Runs: took - half - time.Second}); w.Runs < 0 {
			return settle.Writer{}
		}
	}
	if !s.waits {
		w.Used = w.Runs / 2
	}
	return w
}

func (s *still) Rules(ctx context.Context) (proxy.Judgment, error) {
	took := time.Since(s.began)
	if s.later && took >= s.broken {
		s.rules[s.names[0]] = "99999"
	}
	rep, err := s.cluster.Rules(ctx)
	out := proxy.NewCollector()
	switch {
	case s.torn && took < max(s.writes, s.broken):
		out.Add(proxy.Finding{Name: tableGone, Family: "ip", Message: "table nat has no kube-proxy rules, but other tables do"})
		rep.Families, rep.Services = map[string]bool{"ip": s.flushed}, nil
	case s.another && took >= s.broken:
		out.Add(proxy.Finding{Name: half, Service: s.names[0], Family: "ip", Chain: "another", Message: "a part of it has changed"})
	case !s.torn && took < s.broken:
		out.Add(proxy.Finding{Name: half, Service: s.names[0], Family: "ip", Message: "half of it is there"})
	}
	if s.unused {
		out.Add(proxy.Finding{Name: "kubeproxy.chain.unreferenced", Service: s.names[0], Family: "ip", Message: "no rule jumps to it"})
	}
	if took < s.other {
		rep.Families, rep.Services = map[string]bool{"ip6": true}, nil
		s.live.Wrote = func(string) (wrote, known bool) { return true, true }
	}
	if s.vanish > 0 && took >= s.vanish {
		rep.Families, rep.Services = nil, nil
	}
	rep.Findings = append(rep.Findings, out.List...)
	return rep, err
}

func (s *still) Follow(ctx context.Context, from *proxy.Versions, send func(proxy.Event)) error {
	if s.watch != nil {
		return s.watch
	}
	if s.moves {
		return s.cluster.Follow(ctx, from, send)
	}
	<-ctx.Done()
	return nil
}

func (s *still) List(ctx context.Context, latest bool) (*proxy.Versions, error) {
	if s.lists++; latest && s.behind {
		s.put(s.names[0], "77 0")
	}
	if latest && s.list != nil {
		return nil, s.list
	}
	return s.cluster.List(ctx, latest)
}

func (s *still) Proxy(context.Context) []proxy.Finding {
	if s.gone == "" || s.back > 0 && time.Since(s.began) > s.back {
		return nil
	}
	out := proxy.NewCollector()
	out.Addf(s.gone, "seen")
	return out.List
}

// TestUnsettled checks that differences that could not be followed to their end are unknown,
// neither a finding nor a pass. A kube-proxy that returns within the settle time is not reported.
func TestUnsettled(t *testing.T) {
	const unsettled, absent = "kubeproxy.truth.unsettled", "kubeproxy.process.absent"
	for _, c := range []struct {
		what    string
		s       still
		stale   bool
		time    time.Duration
		want    string
		verdict verdict.Verdict
	}{
		{"stale", still{}, true, time.Minute, "kubeproxy.truth.endpoint-stale", verdict.Fail},
		{"a stale field", still{field: true}, true, time.Minute, "kubeproxy.truth.service-address", verdict.Fail},
		{"a long sync", still{writes: time.Minute}, true, 2 * time.Minute, "", verdict.Pass},
		{"a sync of many minutes", still{writes: 10 * time.Minute}, true, 11 * time.Minute, "", verdict.Pass},
		{"a sync that waits", still{writes: time.Hour, waits: true}, true, 4 * time.Minute, "kubeproxy.truth.endpoint-stale", verdict.Fail},
		{"a sync that never ends", still{writes: 9 * time.Hour}, true, 2 * time.Hour, "kubeproxy.truth.endpoint-stale", verdict.Fail},
		{"a first sync, table by table", still{writes: 3 * time.Minute, torn: true}, false, 4 * time.Minute, "", verdict.Pass},
		{"a first sync, too little time", still{writes: 3 * time.Minute, torn: true}, false, time.Minute, tableGone, verdict.Unknown},
		{"a first sync that waits", still{writes: time.Hour, torn: true, waits: true}, false, 4 * time.Minute, tableGone, verdict.Fail},
		{"half a Service, and then a stale one", still{broken: time.Second}, true, time.Minute, "kubeproxy.truth.endpoint-stale", verdict.Fail},
		{"half of it for a minute, during a sync", still{broken: time.Minute, writes: time.Minute}, false,
			2 * time.Minute, "", verdict.Pass},
		{"half a Service, and then the right one", still{broken: 2 * time.Second}, false, time.Minute, "", verdict.Pass},
		{"half a Service", still{broken: time.Hour}, true, time.Minute, half, verdict.Fail},
		{"half a Service, and then another half", still{broken: 2 * time.Second, another: true}, false, time.Minute, unsettled, verdict.Unknown},
		{"half a Service, too little time", still{broken: time.Hour}, true, 2 * time.Second, half, verdict.Unknown},
		{"half a stale Service, for long enough", still{broken: 10 * time.Second}, true, 20 * time.Second, half, verdict.Fail},
		{"half a table, and then a stale Service", still{broken: time.Second, torn: true}, true, time.Minute, "kubeproxy.truth.endpoint-stale", verdict.Fail},
		{"half a table, and then a stale Service that changes in the API", still{broken: time.Second, torn: true, moves: true}, true,
			time.Minute, "kubeproxy.truth.endpoint-stale", verdict.Fail},
		{"half a Service that is right, and then a stale one", still{broken: time.Second, later: true}, false, time.Minute,
			"kubeproxy.truth.endpoint-stale", verdict.Fail},
		{"half a Service, then a stale one for a moment", still{broken: 14 * time.Second, writes: 20 * time.Second, unseen: true, patient: true},
			true, time.Minute, "", verdict.Pass},
		{"half a table, and then the right one", still{broken: 2 * time.Second, torn: true}, false, time.Minute, "", verdict.Pass},
		{"slow syncs", still{slow: 20 * time.Second, mends: true}, true, time.Minute, "", verdict.Pass},
		{"slow syncs that repair nothing", still{slow: 20 * time.Second}, true, time.Minute, "kubeproxy.truth.endpoint-stale", verdict.Fail},
		{"a slow sync, too little time", still{slow: 40 * time.Second}, true, time.Minute, unsettled, verdict.Unknown},
		{"a slow sync that is stuck", still{slow: time.Hour}, true, 4 * time.Minute, "kubeproxy.truth.endpoint-stale", verdict.Fail},
		{"usual syncs that repair nothing", still{slow: time.Second}, true, 20 * time.Second, "kubeproxy.truth.endpoint-stale", verdict.Fail},
		{"a table without rules serves no Service", still{torn: true, broken: time.Hour, flushed: true}, false, time.Minute, tableGone, verdict.Fail},
		{"a missing family", still{other: time.Hour}, false, time.Minute, "kubeproxy.truth.family-missing", verdict.Fail},
		{"rules that vanish with what was stale", still{vanish: 2 * time.Second}, true, time.Minute, unsettled, verdict.Unknown},
		{"a missing family, too little time", still{other: time.Hour}, false, 2 * time.Second, "kubeproxy.truth.family-missing", verdict.Unknown},
		{"a family missing for a moment", still{other: 2 * time.Second}, false, time.Minute, "", verdict.Pass},
		{"a missing family, then a stale Service", still{other: 2 * time.Second}, true, time.Minute, "kubeproxy.truth.endpoint-stale", verdict.Fail},
		{"an unused chain of a stale Service", still{unused: true}, true, time.Minute, "kubeproxy.truth.endpoint-stale", verdict.Fail},
		{"an unused chain", still{unused: true}, false, time.Minute, "kubeproxy.chain.unreferenced", verdict.Warn},
		{"nothing", still{}, false, time.Minute, "", verdict.Pass},
		{"too little time", still{}, true, 10 * time.Second, unsettled, verdict.Unknown},
		{"no watch", still{watch: errors.New("403 Forbidden")}, true, time.Minute, unsettled, verdict.Unknown},
		{"the second list fails", still{list: errors.New("503")}, true, time.Minute, unsettled, verdict.Unknown},
		{"a watch that lags behind", still{behind: true}, true, time.Minute, unsettled, verdict.Unknown},
		{"no kube-proxy", still{gone: absent}, false, time.Minute, absent, verdict.Fail},
		{"no kube-proxy, too little time", still{gone: absent}, false, 10 * time.Second, absent, verdict.Unknown},
		{"kube-proxy is restarted", still{gone: absent, back: 8 * time.Second}, false, time.Minute, "", verdict.Pass},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := c.s
			s.cluster = newCluster(rand.New(rand.NewPCG(1, 1)))
			s.began = time.Now()
			if c.stale {
				s.rules[s.names[0]] = "99999"
				if list, _, _ := strings.Cut(s.shadow[s.names[0]], " "); c.s.field {
					s.rules[s.names[0]] = list + " 10"
				}
				s.stale[s.names[0]] = true
			}
			for _, name := range s.names {
				if s.flushed {
					s.rules[name], s.stale[name] = "gone", true
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), c.time)
			defer cancel()
			versions, err := s.List(ctx, false)
			require.NoError(t, err)
			if s.moves {
				s.put(s.names[0], "77 0")
			}
			out, err := settle.Run(ctx, &s, &s, versions, settle.Options{Settle: settleTime, Patient: s.patient})
			require.NoError(t, err)
			name, got := "", verdict.Pass
			for _, f := range out.Report.Findings {
				name, got = f.Name, f.Verdict
				if f.Verdict == verdict.Unknown && strings.Contains(f.Remedy, "restart") {
					t.Errorf("%s: an uncertain finding has a restart as its remedy: %s", c.what, f.Remedy)
				}
				if f.Verdict == verdict.Fail && !strings.Contains(f.Message, "; seen since ") {
					t.Errorf("%s: the message lacks its start time: %s", c.what, f.Message)
				}
			}
			if len(out.Report.Findings) > 1 || name != c.want || got != c.verdict {
				t.Errorf("%s: %+v, want %s %s", c.what, out.Report.Findings, c.verdict, c.want)
			}
		})
	}
}
