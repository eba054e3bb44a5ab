package checks_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/checks/checkstest"
	"nodegate/internal/assert"
	"nodegate/internal/host"
	"nodegate/internal/host/activity"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/verdict"
	"nodegate/policy"
)

// TestUntilOpensByItself: the gate opens when the fault disappears, and repairs it if the policy allows.
func TestUntilOpensByItself(t *testing.T) {
	m := &hosttest.Machine{Files: map[string]string{}}
	m.Sysctl("kernel/panic", "0")
	p := checkstest.Load(t, `
		sysctl "kernel.panic" { value = 10 }
		gate {
		  interval = "100ms"
		  repair   = false
		}`)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	attempts := 0
	r, _ := checks.Until(ctx, m.Host(), p.Gate, all(catalog.For(p, checks.Boot)), nil, func(checks.Outcome, activity.Step) bool {
		if attempts++; attempts == 2 {
			m.Sysctl("kernel/panic", "10")
		}
		return true
	})
	assert.True(t, attempts == 3 && r.Verdict() == verdict.Pass, "held for %d attempts, then %v", attempts, r.Verdict())
	m.Sysctl("kernel/panic", "0")
	p.Gate.Repair = true
	attempts = 0
	r, _ = checks.Until(ctx, m.Host(), p.Gate, all(catalog.For(p, checks.Boot)), nil,
		func(checks.Outcome, activity.Step) bool { attempts++; return true })
	assert.True(t, attempts == 1 && r.Results[0].Fixed, "with repair: %d attempts, fixed %t", attempts, r.Results[0].Fixed)
	m.Refuse = map[string]error{"/proc/sys/kernel/panic": syscall.EPERM}
	m.Sysctl("kernel/panic", "0")
	p.Gate.Budget = 0
	always := func(checks.Outcome, activity.Step) bool { return true }
	if r, err := checks.Until(ctx, m.Host(), p.Gate, all(catalog.For(p, checks.Boot)), nil, always); r.Verdict() != verdict.Fail ||
		!errors.Is(err, checks.ErrBudget) {
		t.Errorf("with no budget: %v, %v, want one whole attempt", r.Verdict(), err)
	}
	p.Gate.Budget = time.Minute
	attempts = 0
	r, err := checks.Until(ctx, m.Host(), p.Gate, all(catalog.For(p, checks.Boot)), nil,
		func(checks.Outcome, activity.Step) bool { attempts++; return attempts < 2 })
	if attempts != 2 || r.Verdict() != verdict.Fail || err != nil {
		t.Errorf("stopped after two attempts: %d, %v, %v", attempts, r.Verdict(), err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := checks.Until(ended, m.Host(), p.Gate, all(catalog.For(p, checks.Boot)), nil, always); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled context: %v", err)
	}
}

// hanging is a check whose inspection does not return before release is closed.
type hanging struct{ release chan struct{} }

func (hanging) Name() string              { return "test.hangs" }
func (hanging) Metadata() policy.Metadata { return policy.Metadata{Severity: policy.Block} }
func (h hanging) Inspect(context.Context, *host.Host) (checks.State, error) {
	<-h.release
	return checks.Passing("ok"), nil
}

// TestUntilKeepsItsBudget: an attempt that ignores its context delays neither the end of the budget nor a signal, and is named.
func TestUntilKeepsItsBudget(t *testing.T) {
	stuck := hanging{make(chan struct{})}
	defer close(stuck.release)
	gate := policy.Gate{Budget: 3 * time.Second, Interval: 100 * time.Millisecond}
	reported := 0
	r, err := checks.Until(t.Context(), (&hosttest.Machine{}).Host(), gate, all([]checks.Check{stuck}), nil,
		func(r checks.Outcome, waiting activity.Step) bool {
			if strings.HasPrefix(waiting.String(), "test.hangs has not returned for ") && len(r.Results) == 0 {
				reported++
			}
			return true
		})
	if !errors.Is(err, checks.ErrBudget) || !strings.HasPrefix(err.Error(), "test.hangs has not returned for ") || reported == 0 {
		t.Errorf("%v, reported %d times before", err, reported)
	}
	if len(r.Results) != 1 || r.Verdict() != verdict.Unknown || !errors.Is(r.Results[0].Err, checks.ErrBudget) {
		t.Errorf("the report: %+v", r)
	}
	ctx, cancel := context.WithCancel(t.Context())
	gate.Budget = time.Hour
	_, err = checks.Until(ctx, (&hosttest.Machine{}).Host(), gate, all([]checks.Check{stuck}), nil,
		func(checks.Outcome, activity.Step) bool { cancel(); return true })
	assert.True(t, errors.Is(err, context.Canceled), "a signal while an attempt hangs: %v", err)
}

// late is a check whose Name blocks until release is closed.
type late struct {
	hanging
	once *sync.Once
}

func (l late) Name() string {
	l.once.Do(func() { <-l.release })
	return "test.late"
}

// TestUntilBetweenChecks: an attempt that is between two checks has not ended, and has no report yet: an empty one would pass.
func TestUntilBetweenChecks(t *testing.T) {
	slow := late{hanging{make(chan struct{})}, &sync.Once{}}
	var said []string
	r, err := checks.Until(t.Context(), (&hosttest.Machine{}).Host(), policy.Gate{Budget: time.Minute, Interval: 100 * time.Millisecond},
		all([]checks.Check{slow}), nil, func(r checks.Outcome, waiting activity.Step) bool {
			if said = append(said, fmt.Sprintf("%s, %d results", waiting.What, len(r.Results))); len(said) == 1 {
				close(slow.release)
			}
			return true
		})
	if err != nil || r.Verdict() != verdict.Pass {
		t.Error(r.Verdict(), err)
	}
	assert.True(t, len(said) >= 2 && said[0] == "an attempt, 0 results" && said[len(said)-1] == ", 1 results", "%q", said)
}

// TestBootOmitsWarnings: a problem of severity warn cannot hold the gate, so it does not delay a start.
func TestBootOmitsWarnings(t *testing.T) {
	names := func(text string, stage checks.Stage) string {
		var all []string
		for _, c := range catalog.For(checkstest.Load(t, text), stage) {
			all = append(all, c.Name())
		}
		return strings.Join(all, " ")
	}
	both := `check "swap" {}
		check "nodeport.overlap" {}`
	checkstest.Equal(t, "at boot", "swap", names(both, checks.Boot))
	checkstest.Equal(t, "at run", "swap nodeport.overlap", names(both, checks.Run))
	checkstest.Equal(t, "asked to block", "nodeport.overlap", names(`check "nodeport.overlap" { severity = "block" }`, checks.Boot))
}

// made is a check with some changes. After the first change was made, the next inspection hangs.
type made struct {
	hanging
	changes []func() error
	set     *bool
}

func (m made) Inspect(ctx context.Context, h *host.Host) (checks.State, error) {
	if *m.set {
		return m.hanging.Inspect(ctx, h)
	}
	s := checks.State{Want: "1", Got: "0"}
	for i, change := range m.changes {
		s.Changes = append(s.Changes, checks.Change{
			What: "test", From: "0", To: fmt.Sprint(i + 1), Kind: checks.SetSysctl, Target: "test",
			Make: func(context.Context, *host.Host) error { *m.set = true; return change() },
		})
	}
	return s, nil
}

// TestChangesAreRecordedOnce: each change is recorded once, before it is made, even if the attempt or the change hangs. A change that
// failed is recorded as undone.
func TestChangesAreRecordedOnce(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	works := func() error { return nil }
	fails := func() error { return syscall.EIO }
	hangs := func() error { <-release; return syscall.EIO }
	for _, c := range []struct {
		what    string
		changes []func() error
		want    string
	}{
		{"one, and the inspection hangs", []func() error{works}, "0 [1]"},
		{"the second hangs", []func() error{works, hangs}, "0 [1], 0 [2]"},
		{"the second fails", []func() error{works, fails, works}, "0 [1], 0 [2], 0 [0], 0 [3]"},
	} {
		set, recorded := false, make(chan string, 5)
		gate := policy.Gate{Budget: time.Second, Interval: 100 * time.Millisecond, Repair: true}
		_, err := checks.Until(t.Context(), (&hosttest.Machine{}).Host(), gate, all([]checks.Check{made{hanging{release}, c.changes, &set}}),
			func(was checks.Result, made []checks.Change) {
				var to []string
				for _, m := range made {
					to = append(to, m.To)
				}
				recorded <- fmt.Sprint(was.State.Got, " ", to)
			},
			func(checks.Outcome, activity.Step) bool { return true })
		var got []string
		for len(recorded) > 0 {
			got = append(got, <-recorded)
		}
		assert.True(t, strings.Join(got, ", ") == c.want && errors.Is(err, checks.ErrBudget), "%s: recorded %q, %v", c.what, got, err)
	}
}

// all returns the same checks for each attempt.
func all(list []checks.Check) func(checks.Outcome) []checks.Check {
	return func(checks.Outcome) []checks.Check { return list }
}

// TestBudgetEndsInAnAttempt: if an attempt has just begun when the budget ends, the previous report is returned.
func TestBudgetEndsInAnAttempt(t *testing.T) {
	stuck := hanging{make(chan struct{})}
	defer close(stuck.release)
	fails := &hosttest.Machine{Files: map[string]string{}}
	fails.Sysctl("kernel/panic", "0")
	p := checkstest.Load(t, `sysctl "kernel.panic" { value = 10 }`)
	list := catalog.For(p, checks.Boot)
	r, err := checks.Until(t.Context(), fails.Host(), policy.Gate{Budget: time.Second, Interval: 900 * time.Millisecond},
		func(last checks.Outcome) []checks.Check {
			if len(last.Results) == 0 {
				return list
			}
			return []checks.Check{stuck}
		}, nil, func(checks.Outcome, activity.Step) bool { return true })
	assert.True(t, r.Verdict() == verdict.Fail && err != nil && err.Error() == checks.ErrBudget.Error(), "%v, %v", r.Verdict(), err)
}
