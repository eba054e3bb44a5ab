package watch

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"nodegate/checks"
	"nodegate/internal/assert"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/verdict"
	"nodegate/policy"
)

// busyFiles take long to read a sysctl, left times.
type busyFiles struct {
	host.Files
	left  *atomic.Int32
	takes time.Duration
}

func (f busyFiles) ReadFile(name string) ([]byte, error) {
	if name == "/proc/sys/kernel/panic" && f.left.Load() > 0 {
		f.left.Add(-1)
		time.Sleep(f.takes)
	}
	return f.Files.ReadFile(name)
}

// TestCut: a machine that is busy for one round does not become unknown, even while watch starts; one that is busy for five rounds does.
func TestCut(t *testing.T) {
	for _, test := range []struct {
		starts, busy int32 // rounds, when watch starts and later
		want         []string
		unknown      bool // at some time
	}{
		{0, 1, nil, false},
		{1, 0, nil, false},
		{0, 4, []string{"1 check not reached in time: sysctl.kernel.panic_on_oops"}, false},
		{0, 5, []string{"1 check not reached in time: sysctl.kernel.panic_on_oops"}, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := &hosttest.Machine{Files: map[string]string{}, Notices: make(chan host.LinkEvent)}
			m.Sysctl("kernel/panic", "10")
			m.Sysctl("kernel/panic_on_oops", "1")
			var left atomic.Int32
			left.Store(test.starts)
			look := m.Host()
			look.Files = busyFiles{look.Files, &left, roundTime + time.Second}
			var said []string
			ctx, cancel := context.WithCancel(t.Context())
			w := &Watcher{
				Host: m.Host(), Observer: look, Every: time.Minute, BreakGlass: func() string { return "" },
				Policy: func(bool) (*policy.Policy, error) {
					return load("sysctl \"kernel.panic\" { value = 10 }\nsysctl \"kernel.panic_on_oops\" { value = 1 }")
				},
				Changed: func(r checks.Result) { said = append(said, r.Verdict.String()+" "+r.Name) },
				Trouble: func(line string) { said = append(said, line) },
			}
			ended := make(chan error)
			go func() { ended <- w.Run(ctx) }()
			time.Sleep(10*time.Second + time.Duration(test.starts)*2*roundTime)
			s := w.State()
			assert.True(t, s.Rounds == 1 && s.Report.Verdict() == verdict.Pass, "at first: %d rounds, %v", s.Rounds, s.Report.Verdict())
			left.Store(test.busy)
			unknown := false
			for range 8 * 60 {
				time.Sleep(time.Second)
				unknown = unknown || w.State().Report.Verdict() == verdict.Unknown
			}
			assert.Equal(t, unknown, test.unknown, "%+v", test)
			if s := w.State(); s.Report.Verdict() != verdict.Pass || !slices.Equal(said, test.want) || left.Load() != 0 {
				t.Errorf("%+v: %v afterwards, said was %q", test, s.Report.Verdict(), said)
			}
			cancel()
			assert.NoError(t, <-ended)
		})
	}
}

// TestGatePasses: a round that the gate's pass overtakes is not reported: it is repeated at once. A pass begins a round.
func TestGatePasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &hosttest.Machine{Files: map[string]string{}, Notices: make(chan host.LinkEvent)}
		m.Sysctl("kernel/panic", "10")
		m.Sysctl("kernel/oops", "0")
		var left atomic.Int32
		left.Store(1)
		look := m.Host()
		look.Files = busyFiles{look.Files, &left, roundTime / 2}
		var said []string
		var passed time.Time
		ctx, cancel := context.WithCancel(t.Context())
		w := &Watcher{
			Host: m.Host(), Observer: look, Every: time.Hour, BreakGlass: func() string { return "" },
			Passed: func() time.Time { return passed },
			Policy: func(bool) (*policy.Policy, error) {
				return load("sysctl \"kernel.oops\" {\n value = 1\n drift = \"report\"\n}\nsysctl \"kernel.panic\" { value = 10 }")
			},
			Changed: func(r checks.Result) { said = append(said, r.Verdict.String()+" "+r.Name) },
		}
		ended := make(chan error)
		go func() { ended <- w.Run(ctx) }()
		time.Sleep(roundTime / 4)
		m.Sysctl("kernel/oops", "1") // the round has read the other value, and is not over
		passed = time.Now()
		time.Sleep(roundTime)
		rounds := w.State().Rounds
		assert.True(t, rounds == 1 && said == nil, "%d rounds, said %q", rounds, said)
		m.Sysctl("kernel/oops", "0")
		passed = time.Now()
		time.Sleep(2 * glanceEvery)
		assert.True(t, slices.Equal(said, []string{"fail sysctl.kernel.oops"}), "said %q after another pass", said)
		cancel()
		assert.NoError(t, <-ended)
	})
}
