package gate

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"nodegate/internal/assert"
)

// TestQuestion: a file system that hangs costs one answer's time, once, and its late answer is still used.
func TestQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, calls := time.Now(), atomic.Int32{}
		hangs := func() int { calls.Add(1); time.Sleep(time.Minute); return 7 }
		var q Question[int]
		for range 3 {
			a, answered := q.Ask(3*time.Second, hangs)
			assert.True(t, !answered, "answered %d", a)
		}
		waited := time.Since(began)
		assert.True(t, waited == 3*time.Second && calls.Load() == 1, "waited %s in %d calls", waited, calls.Load())
		time.Sleep(time.Hour)
		a, answered := q.Ask(3*time.Second, hangs)
		assert.True(t, answered && a == 7, "the late answer: %d, %t", a, answered)
		if a, answered := q.Ask(time.Hour, hangs); !answered || a != 7 || calls.Load() != 2 {
			t.Errorf("the next question: %d, %t, %d calls", a, answered, calls.Load())
		}
	})
}
