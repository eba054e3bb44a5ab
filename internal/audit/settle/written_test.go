package settle

import (
	"testing"
	"time"
)

// TestWritings feeds Written data at seconds since the first look, and checks when a difference
// that has settled after 15 s counts.
func TestWritings(t *testing.T) {
	type said struct{ at, queued int } // end of the last sync, and last change
	from := time.Unix(1e9, 0)
	second := func(s int) time.Time { return from.Add(time.Duration(s) * time.Second) }
	for _, c := range []struct {
		what   string
		shared bool
		says   map[int]said // by the second from which it is valid
		want   int
	}{
		{"no change for a long time", false, map[int]said{0: {-30, -300}}, 0},
		{"a change before the first look, a sync that ends", false, map[int]said{0: {-1, -2}, 20: {20, -2}}, 20},
		{"a change during a sync, the next one ends", false, map[int]said{0: {-1, -2}, 5: {5, 3}, 30: {30, 3}}, 30},
		{"continuous changes, short syncs", false, map[int]said{0: {0, 0}, 10: {10, 10}, 16: {16, 16}, 18: {18, 18}}, 18},
		{"continuous changes, a long sync", false, map[int]said{0: {0, 0}, 14: {14, 14}, 40: {40, 40}, 50: {50, 50}}, 50},
		{"no sync ends", false, map[int]said{0: {-1, -2}}, 118},
		{"two families, each ends twice", true, map[int]said{0: {-1, -2}, 5: {5, -2}, 10: {10, -2}, 20: {20, -2}}, 20},
	} {
		w, got := writings{}, -1
		for s := range 120 {
			if say, ok := c.says[s]; ok {
				w.record(Written{At: second(say.at), Queued: second(say.queued), Shared: c.shared})
			}
			w.record(Written{}) // no data
			if w.isComplete(second(15), second(s)) {
				got = s
				break
			}
		}
		if got != c.want {
			t.Errorf("%s: after %d s, want %d", c.what, got, c.want)
		}
	}
}

// TestWholeWritings checks syncs that are one program each: the audit waits up to a minute for the
// retry of a failed sync. It does not wait if changes are continuous or kube-proxy has received
// none.
func TestWholeWritings(t *testing.T) {
	from := time.Unix(1e9, 0)
	second := func(s int) time.Time { return from.Add(time.Duration(s) * time.Second) }
	for _, c := range []struct {
		what string
		says func(s int) (at, queued int)
		want int
	}{
		{"no change received", func(int) (int, int) { return -20, -21 }, 0},
		{"a sync since the change", func(int) (int, int) { return 3, 2 }, 0},
		{"a change waits for the next try", func(s int) (int, int) {
			if s < 32 {
				return -20, 1
			}
			return 32, 1
		}, 32},
		{"the change waits forever", func(int) (int, int) { return -20, 1 }, 75},
		{"continuous changes, none written", func(s int) (int, int) { return -20, s }, 75},
		{"continuous changes, all written", func(s int) (int, int) { return s - 1, s }, 17},
	} {
		w, got := writings{}, -1
		for s := range 120 {
			at, queued := c.says(s)
			w.record(Written{At: second(at), Queued: second(queued), Whole: true})
			if w.isComplete(second(15), second(s)) {
				got = s
				break
			}
		}
		if got != c.want {
			t.Errorf("%s: after %d s, want %d", c.what, got, c.want)
		}
	}
}
