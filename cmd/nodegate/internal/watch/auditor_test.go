package watch

import (
	"errors"
	"strings"
	"testing"
	"time"

	"nodegate/internal/assert"
	"nodegate/internal/audit"
	"nodegate/internal/verdict"
	"nodegate/policy"
)

// TestVerdict checks the order of the verdicts: fail comes first, unknown is never a pass, and a
// first round that does not end is reported.
func TestVerdict(t *testing.T) {
	finding := func(v verdict.Verdict, service string) audit.Finding {
		return audit.Finding{Name: "kubeproxy.truth.x", Service: service, Verdict: v, Message: "differs", Remedy: "look"}
	}
	fail, warn, unknown := finding(verdict.Fail, "default/web"), finding(verdict.Warn, ""), finding(verdict.Unknown, "")
	ofRule := fail
	ofRule.Means, ofRule.Message = "connections fail", "KUBE-SEP-X is empty"
	broken := errors.New("no route to host")
	kept := func(rounds int, err error, found ...audit.Finding) audit.Progress {
		return audit.Progress{Rounds: rounds, Services: 3, Unanswered: err, Findings: found}
	}
	for name, c := range map[string]struct {
		kept     audit.Progress
		age      time.Duration
		want     string // verdict, then message
		severity policy.Severity
	}{
		"nothing wrong":        {kept(1, nil), 0, "pass the rules of 3 Service ports agree with the API", policy.Block},
		"the first round":      {kept(0, nil), time.Second, "unknown no audit has finished since ", policy.Block},
		"a stale Service":      {kept(1, nil, fail), 0, "fail default/web: differs", policy.Block},
		"a broken rule":        {kept(1, nil, ofRule), 0, "fail default/web: connections fail (KUBE-SEP-X is empty)", policy.Block},
		"and a warning before": {kept(1, nil, warn, fail), 0, "fail default/web: differs (and 1 other finding)", policy.Block},
		"a warning":            {kept(1, nil, warn), 0, "fail differs", policy.Warn},
		"unknown":              {kept(1, nil, warn, unknown), 0, "unknown differs", policy.Block},
		"no API":               {kept(1, broken), 0, "unknown the rules were not compared with the API: no route to host", policy.Block},
		"no API, bad rules":    {kept(1, broken, fail), 0, "fail default/web: differs", policy.Block},
		"a hang":               {kept(1, nil), time.Hour, "unknown the audit has hung since ", policy.Block},
		"a change waits":       {audit.Progress{Rounds: 1, Services: 3, Waiting: time.Now().Add(-time.Minute)}, 0, "pass ", policy.Block},
		"and for too long": {audit.Progress{Rounds: 1, Services: 3, Audited: time.Now().Add(-time.Hour), Waiting: time.Now().Add(-3 * time.Minute)}, 0,
			"unknown the rules were last compared with the API 1h0m0s ago; rules or API have changed since, 3m0s ago", policy.Block},
		"and a finding":    {audit.Progress{Rounds: 1, Findings: []audit.Finding{fail}, Waiting: time.Now().Add(-3 * time.Minute)}, 0, "fail default/web", policy.Block},
		"unreadable rules": {audit.Progress{Rounds: 2, Unread: broken}, 0, "unknown no route to host", policy.Block},
	} {
		v := auditCheck{asks: policy.Audit{On: true, Severity: policy.Block}, kept: c.kept, began: time.Now().Add(-c.age), seen: time.Now().Add(-c.age)}
		s, err := v.Inspect(t.Context(), nil)
		got := "fail " + s.Got
		switch {
		case err != nil:
			got = "unknown " + err.Error()
		case s.Skip != "":
			got = "skipped " + s.Skip
		case s.Pass:
			got = "pass " + s.Got
		}
		assert.True(t, strings.HasPrefix(got, c.want), "%s: %q, want %q", name, got, c.want)
		assert.Equal(t, len(s.Evidence), len(c.kept.Findings), "%s", name)
		severity := v.Metadata().Severity
		assert.True(t, severity == c.severity, "%s: severity %s, want %s", name, severity, c.severity)
	}
}
