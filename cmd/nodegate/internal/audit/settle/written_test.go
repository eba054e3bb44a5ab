package settle

import (
	"testing"
	"time"
)

// TestWritings: what kube-proxy says of its writings, at seconds from the first look, and from when on a difference that has settled
// after 15 s is one.
func TestWritings(t *testing.T) {
	type said struct{ at, queued int } // the end of the last writing, and the last change
	from := time.Unix(1e9, 0)
	second := func(s int) time.Time { return from.Add(time.Duration(s) * time.Second) }
	for _, c := range []struct {
		what   string
		shared bool
		says   map[int]said // from then on
		want   int
	}{
		{"nothing for long", false, map[int]said{0: {-30, -300}}, 0},
		{"a change before the first look, a writing that ends", false, map[int]said{0: {-1, -2}, 20: {20, -2}}, 20},
		{"a change during a writing, the next one ends", false, map[int]said{0: {-1, -2}, 5: {5, 3}, 30: {30, 3}}, 30},
		{"changes all the time, short writings", false, map[int]said{0: {0, 0}, 10: {10, 10}, 16: {16, 16}, 18: {18, 18}}, 18},
		{"changes all the time, a long writing", false, map[int]said{0: {0, 0}, 14: {14, 14}, 40: {40, 40}, 50: {50, 50}}, 50},
		{"no writing ends", false, map[int]said{0: {-1, -2}}, 118},
		{"of two families, each ends twice", true, map[int]said{0: {-1, -2}, 5: {5, -2}, 10: {10, -2}, 20: {20, -2}}, 20},
	} {
		w, got := writings{}, -1
		for s := range 120 {
			if say, ok := c.says[s]; ok {
				w.note(Written{At: second(say.at), Queued: second(say.queued), Shared: c.shared})
			}
			w.note(Written{}) // it does not answer
			if w.done(second(15), second(s)) {
				got = s
				break
			}
		}
		if got != c.want {
			t.Errorf("%s: after %d s, want %d", c.what, got, c.want)
		}
	}
}

// TestWholeWritings: where a writing is whole, one that failed and is tried again is waited for, for a minute; where changes come all the
// time, or kube-proxy has heard of none, nothing is.
func TestWholeWritings(t *testing.T) {
	from := time.Unix(1e9, 0)
	second := func(s int) time.Time { return from.Add(time.Duration(s) * time.Second) }
	for _, c := range []struct {
		what string
		says func(s int) (at, queued int)
		want int
	}{
		{"it has heard of nothing", func(int) (int, int) { return -20, -21 }, 0},
		{"it has written since", func(int) (int, int) { return 3, 2 }, 0},
		{"a change waits for the next try", func(s int) (int, int) {
			if s < 32 {
				return -20, 1
			}
			return 32, 1
		}, 32},
		{"it waits for ever", func(int) (int, int) { return -20, 1 }, 75},
		{"changes all the time, and it writes none", func(s int) (int, int) { return -20, s }, 75},
		{"changes all the time, and it writes them", func(s int) (int, int) { return s - 1, s }, 17},
	} {
		w, got := writings{}, -1
		for s := range 120 {
			at, queued := c.says(s)
			w.note(Written{At: second(at), Queued: second(queued), Whole: true})
			if w.done(second(15), second(s)) {
				got = s
				break
			}
		}
		if got != c.want {
			t.Errorf("%s: after %d s, want %d", c.what, got, c.want)
		}
	}
}
