package settle_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"nodegate/internal/audit/settle"
)

// TestKeepStill checks that the rules are not read again while nothing changes.
func TestKeepStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &generation{newCluster(rand.New(rand.NewPCG(1, 1))), "7", true}
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		go c.proxy(ctx)
		var reads []int
		var looked time.Time
		go settle.Follow(ctx, c, c, settle.FollowOptions{
			Settle: func() time.Duration { return settleTime }, Every: time.Minute,
			Done: func(k settle.Progress) { reads = append(reads, k.Rounds) }, Looked: func(settle.Progress) { looked = time.Now() },
		})
		time.Sleep(time.Hour)
		if ago := time.Since(looked); ago > time.Minute {
			t.Errorf("the last look was %v ago", ago)
		}
		if !slices.Equal(reads, []int{1}) {
			t.Errorf("rounds in an hour without changes: %v, want only the first", reads)
		}
		c.generation = "8"
		time.Sleep(time.Minute)
		if len(reads) != 2 {
			t.Errorf("a new generation of the rules: %d rounds, want 2", len(reads))
		}
	})
}

// generation is a cluster whose rules have a generation.
type generation struct {
	*cluster
	generation string
	sure       bool
}

func (g *generation) Generation(context.Context) (string, bool, error) {
	return g.generation, g.sure, nil
}

// TestKeepLayout checks an unreliable generation: the rules are read now and then while it is
// unchanged, and at once when it changes.
func TestKeepLayout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &generation{newCluster(rand.New(rand.NewPCG(1, 1))), "7", false}
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		go c.proxy(ctx)
		rounds := 0
		go settle.Follow(ctx, c, c, settle.FollowOptions{
			Settle: func() time.Duration { return settleTime }, Every: time.Minute, Done: func(k settle.Progress) { rounds = k.Rounds },
		})
		time.Sleep(time.Hour)
		if rounds < 10 || rounds > 18 {
			t.Errorf("%d rounds in an hour without changes, want one in four minutes", rounds)
		}
		c.generation = "8"
		before := rounds
		time.Sleep(time.Minute)
		if rounds != before+1 {
			t.Errorf("another generation of the rules: %d rounds, want 1", rounds-before)
		}
	})
}
