package settle

import (
	"math/rand/v2"
	"testing"
	"time"

	"nodegate/internal/assert"
)

// TestBudget checks that rounds at the earliest allowed times use at most one part in share of the
// time plus the saved time, if each round uses less than that part of Every. No round waits longer
// than Every.
func TestBudget(t *testing.T) {
	const every = 5 * time.Minute
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		now := time.Unix(0, 0)
		b := newBudget(every, now)
		most := time.Duration(r.Int64N(int64(every / share)))
		var sum time.Duration
		for end := now.Add(24 * time.Hour); now.Before(end); {
			used := time.Duration(r.Int64N(int64(most) + 1))
			wait := b.recordUse(used, now)
			if wait > 2*every {
				t.Fatalf("seed %d: after %s of a processor the next round waits %s", seed, used, wait)
			}
			now = now.Add(max(wait, time.Second))
			if sum += used; sum > now.Sub(time.Unix(0, 0))/share+2*every/share {
				t.Fatalf("seed %d: after %s, rounds have used %s", seed, now.Sub(time.Unix(0, 0)), sum)
			}
		}
	}
}

// TestBudgetSaved checks that the first expensive round delays nothing, but the second one does.
func TestBudgetSaved(t *testing.T) {
	now := time.Unix(0, 0)
	b := newBudget(5*time.Minute, now)
	assert.Equal(t, b.recordUse(2300*time.Millisecond, now), 0, "the first round: the next waits")
	if wait := b.recordUse(600*time.Millisecond, now.Add(10*time.Second)); wait != 52500*time.Millisecond {
		t.Errorf("the second round owes 0.42 s, the third waits %s", wait)
	}
	assert.Equal(t, b.recordUse(time.Minute, now.Add(20*time.Second)), 10*time.Minute, "a round of a minute: the next waits")
}
