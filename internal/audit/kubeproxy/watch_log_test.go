package kubeproxy_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"nodegate/internal/audit/kubeproxy"
	"nodegate/internal/audit/proxy"
	"nodegate/internal/require"
	"nodegate/internal/verdict"
)

// failures returns lines of kube-proxy's log, as klog writes them in a zone.
func failures(in *time.Location, at ...time.Time) string {
	text := ""
	for _, t := range at {
		text += "E" + t.In(in).Format("0102 15:04:05.000000") + `       1 reflector.go:204] "Failed to watch" err="failed to list *v1.Service: ` +
			`connect: connection refused" reflector="k8s.io/client-go/informers/factory.go:160" type="*v1.Service"` + "\n"
	}
	return text
}

// TestLogTimes: neither failures of an earlier process nor failures with ambiguous times cause a
// fail verdict.
func TestLogTimes(t *testing.T) {
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	ago := func(minutes ...int) (at []time.Time) {
		for _, m := range minutes {
			at = append(at, now.Add(-time.Duration(m)*time.Minute))
		}
		return at
	}
	west, east := time.FixedZone("host", -5*3600), time.FixedZone("host", 2*3600)
	quiet := func(in *time.Location, minutes int) string {
		return "I" + now.Add(-time.Duration(minutes)*time.Minute).In(in).Format("0102 15:04:05.000000") + " 1 server.go:1] \"Starting\"\n"
	}
	for _, c := range []struct {
		what           string
		host           *time.Location
		text           string
		written, began int // minutes ago; -1 if unknown
		want           verdict.Verdict
	}{
		{"continues", time.UTC, failures(time.UTC, ago(5, 3, 1)...), 1, 30, verdict.Fail},
		{"two short failures of the API, eight minutes apart", time.UTC, failures(time.UTC, ago(9, 9, 9, 1, 1, 1)...), 1, 30, verdict.Pass},
		{"after a restart", time.UTC, failures(time.UTC, ago(6, 4, 2)...) + quiet(time.UTC, 1), 1, 1, verdict.Pass},
		{"a restart that the log does not show", time.UTC, failures(time.UTC, ago(6, 4, 2)...), 2, 1, verdict.Pass},
		{"again after a restart", time.UTC, failures(time.UTC, ago(20, 19, 3, 2, 1)...), 1, 4, verdict.Fail},
		{"UTC, west of it", west, failures(time.UTC, ago(5, 3, 1)...), 1, 30, verdict.Fail},
		{"UTC, west of it, over", west, failures(time.UTC, ago(60, 50, 40)...), 40, 90, verdict.Pass},
		{"UTC, west of it, over, lines since", west, failures(time.UTC, ago(60, 50, 40)...) + quiet(time.UTC, 1), 1, 90, verdict.Pass},
		{"UTC, east of it", east, failures(time.UTC, ago(5, 3, 1)...), 1, 30, verdict.Fail},
		{"the host's zone, west", west, failures(west, ago(5, 3, 1)...), 1, 30, verdict.Fail},
		{"the host's zone, over for as long as its offset", east, failures(east, ago(130, 125, 121)...) + quiet(east, 1), 1, 200,
			verdict.Pass},
		{"UTC, over for as long as the host's offset", west, failures(time.UTC, ago(305, 303, 301)...) + quiet(time.UTC, 1), 1, 400,
			verdict.Pass},
		{"a copy", west, failures(time.UTC, ago(5, 3, 1)...), -1, -1, verdict.Unknown},
		{"the clock was set back", time.UTC, failures(time.UTC, ago(-50, -60, -70)...), 1, -1, verdict.Pass},
		{"no times, written long ago", time.UTC, strings.Repeat("Failed to list *v1.Service: Unauthorized\n", 3), 4, -1, verdict.Pass},
		{"no times, written now", time.UTC, strings.Repeat("Failed to list *v1.Service: Unauthorized\n", 3), 0, -1, verdict.Unknown},
		{"no times, written before it began", time.UTC, strings.Repeat("Failed to list *v1.Service: Unauthorized\n", 3), 2, 1, verdict.Pass},
	} {
		of := kubeproxy.Log{Now: now.In(c.host)}
		if c.written >= 0 {
			of.Written = ago(c.written)[0]
		}
		if c.began >= 0 {
			of.Began = ago(c.began)[0]
		}
		found, err := kubeproxy.JudgeLog(strings.NewReader(c.text), of)
		require.NoError(t, err)
		got := verdict.Pass
		for _, f := range found {
			got = f.Verdict
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s: %+v", c.what, got, c.want, found)
		}
	}
}

// TestLogFile reads the time of the file's last write and the start of kube-proxy.
func TestLogFile(t *testing.T) {
	now := time.Now()
	name := filepath.Join(t.TempDir(), "kube-proxy.log")
	text := failures(time.UTC, now.Add(-150*time.Second), now.Add(-100*time.Second), now.Add(-60*time.Second))
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	for _, c := range []struct {
		what           string
		written, began time.Time
		want           string
	}{
		{"continues", now.Add(-60 * time.Second), time.Time{}, "kubeproxy.watch.failing"},
		{"restarted", now.Add(-60 * time.Second), now.Add(-30 * time.Second), ""},
		{"written long ago", now.Add(-time.Hour), time.Time{}, ""},
	} {
		require.NoError(t, os.Chtimes(name, time.Time{}, c.written))
		got := kubeproxy.Ask(t.Context(), kubeproxy.Pages{Logs: []string{name}, Began: c.began}, func(err error) { t.Error(err) })
		if want(t, got.Findings, c.want); !got.Log {
			t.Errorf("%s: the log was not read", c.what)
		}
	}
}

// TestAgreed: a log proves nothing if the rules are right.
func TestAgreed(t *testing.T) {
	for other, want := range map[string]verdict.Verdict{
		"kubeproxy.sync.ineligible": verdict.Unknown, "kubeproxy.truth.endpoint-stale": verdict.Fail,
	} {
		found := []proxy.Finding{
			{Name: "kubeproxy.watch.failing", Verdict: verdict.Fail, Remedy: "restart"}, {Name: other, Verdict: verdict.Warn},
		}
		kubeproxy.Agreed(found)
		if got := found[0]; got.Verdict != want || !strings.HasSuffix(got.Remedy, "restart") || found[1].Verdict != verdict.Warn {
			t.Errorf("beside %s: %+v", other, found)
		}
	}
}
