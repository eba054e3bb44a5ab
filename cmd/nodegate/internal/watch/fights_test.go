package watch

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"nodegate/internal/assert"
	"nodegate/internal/require"
)

// TestFights: a setting is changed back every second and inspected every 30 s, until the other program stops.
func TestFights(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	f := fights{}
	var corrected []string
	fight, ended := "", ""
	for s := 0; s <= 6*3600; s += 30 {
		now := began.Add(time.Duration(s) * time.Second)
		if fighting := s < 2*3600; fighting && f.mayCorrect("x", now) {
			corrected = append(corrected, (now.Sub(began)).String())
			if begins, _ := f.recordAttempt("x", now, false); begins {
				fight += now.Sub(began).String()
			}
		}
		if over := f.takeEnded(now); slices.Contains(over, "x") {
			ended += now.Sub(began).String()
		}
	}
	got := fmt.Sprintf("%s; fight at %s, over at %s", strings.Join(corrected, " "), fight, ended)
	// After the fifth correction: pauses of 1, 2, 4, 8, 16, 32 and 64 minutes.
	// The last pause began at 1h5m, so the next correction would have been due at 2h9m.
	const want = "0s 30s 1m0s 1m30s 2m0s 3m0s 5m0s 9m0s 17m0s 33m0s 1h5m0s; fight at 2m0s, over at 2h9m0s"
	assert.Equal(t, got, want)
	assert.Equal(t, len(f), 0)
}

// TestNoFight: four corrections in ten minutes are not a fight, no matter how long this continues.
func TestNoFight(t *testing.T) {
	f := fights{}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for range 1000 {
		now = now.Add(3 * time.Minute)
		begins, _ := f.recordAttempt("x", now, false)
		require.True(t, !begins && f.mayCorrect("x", now), "a fight at %s", now)
	}
}

// TestFailedIsNoFight: failed attempts have the pauses of a fight but are not a fight, even if one of them succeeds in the end. A setting
// that is corrected and changed back repeatedly is a fight, even if an attempt failed in between.
func TestFailedIsNoFight(t *testing.T) {
	for _, test := range []struct{ failed, want string }{
		{"eeeeeeee", "0s 30s 1m0s 1m30s 2m0s 3m0s 5m0s 9m0s; news at 0s; fight at "},
		{"eeeee.e.", "0s 30s 1m0s 1m30s 2m0s 3m0s 5m0s 9m0s; news at 0s 5m0s; fight at "},
		{"eeeeeee....", "0s 30s 1m0s 1m30s 2m0s 3m0s 5m0s 9m0s 17m0s 33m0s 1h5m0s; news at 0s; fight at "},
		{"..e...", "0s 30s 1m0s 1m30s 2m0s 3m0s; news at 1m0s; fight at 3m0s"},
		{".....e", "0s 30s 1m0s 1m30s 2m0s 3m0s; news at 3m0s; fight at 2m0s"},
	} {
		began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		f := fights{}
		var tried, heard, fight []string
		for now := began; len(tried) < len(test.failed); now = now.Add(30 * time.Second) {
			if !f.mayCorrect("x", now) {
				continue
			}
			at := now.Sub(began).String()
			begins, news := f.recordAttempt("x", now, test.failed[len(tried)] == 'e')
			if tried = append(tried, at); news {
				heard = append(heard, at)
			}
			if begins {
				fight = append(fight, at)
			}
		}
		got := fmt.Sprintf("%s; news at %s; fight at %s", strings.Join(tried, " "), strings.Join(heard, " "), strings.Join(fight, " "))
		assert.Equal(t, got, test.want, "%s", test.failed)
	}
}
