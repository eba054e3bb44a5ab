package gate

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestQuestion: a file system that hangs costs one answer's time, once, and its late answer is still used.
func TestQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, calls := time.Now(), atomic.Int32{}
		hangs := func() int { calls.Add(1); time.Sleep(time.Minute); return 7 }
		var q Question[int]
		for range 3 {
			if a, answered := q.Ask(3*time.Second, hangs); answered {
				t.Errorf("answered %d", a)
			}
		}
		if waited := time.Since(began); waited != 3*time.Second || calls.Load() != 1 {
			t.Errorf("waited %s in %d calls", waited, calls.Load())
		}
		time.Sleep(time.Hour)
		if a, answered := q.Ask(3*time.Second, hangs); !answered || a != 7 {
			t.Errorf("the late answer: %d, %t", a, answered)
		}
		if a, answered := q.Ask(time.Hour, hangs); !answered || a != 7 || calls.Load() != 2 {
			t.Errorf("the next question: %d, %t, %d calls", a, answered, calls.Load())
		}
	})
}
