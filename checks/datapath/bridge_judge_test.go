package datapath

import (
	"testing"

	"nodegate/internal/host/netns"
)

// TestLost checks that every loss has its own pattern of counters and its own summary.
func TestLost(t *testing.T) {
	way := func(pre, fwd, post uint64) netns.Way {
		return netns.Way{Prerouting: pre, Forward: fwd, Postrouting: post}
	}
	full := way(1, 1, 1)
	seen := map[string]Loss{}
	for _, c := range []struct {
		want Loss
		o    Observed
	}{
		{"", Observed{Exchanged: true}},
		{RequestUnsent, Observed{}},
		{RequestUnseen, Observed{Sent: 2}},
		{RequestUntranslated, Observed{Sent: 2, Hooks: netns.Hits{Request: way(2, 0, 0)}}},
		{RequestUnrouted, Observed{Sent: 2, Hooks: netns.Hits{Request: way(2, 0, 0), Translated: 1}}},
		{RequestDropped, Observed{Sent: 2, Hooks: netns.Hits{Request: way(2, 2, 0), Translated: 1}}},
		{RequestUndelivered, Observed{Sent: 2, Hooks: netns.Hits{Request: full, Translated: 1}}},
		{ReplyUnsent, Observed{Sent: 2, Hooks: netns.Hits{Request: full, Translated: 1}, Arrived: 1}},
		{ReplyUnseen, Observed{Sent: 2, Hooks: netns.Hits{Request: full, Translated: 1}, Arrived: 1, Answered: 1}},
		{ReplyUnrouted, Observed{Sent: 2, Hooks: netns.Hits{Request: full, Reply: way(1, 0, 0)}, Arrived: 1, Answered: 1}},
		{ReplyDropped, Observed{Sent: 2, Hooks: netns.Hits{Request: full, Reply: way(1, 1, 0)}, Arrived: 1, Answered: 1}},
		{ReplyUndelivered, Observed{Sent: 2, Hooks: netns.Hits{Request: full, Reply: full}, Arrived: 1, Answered: 1}},
		{ReplyUntranslated, Observed{Sent: 2, Hooks: netns.Hits{Request: full}, Arrived: 1, Answered: 1, Untranslated: 1}},
		{Incomplete, Observed{Sent: 2, Hooks: netns.Hits{Request: full, Reply: full}, Arrived: 1, Answered: 1, Translated: 1}},
	} {
		if got := c.o.findLoss(); got != c.want {
			t.Errorf("%s, want %s: %+v", got, c.want, c.o)
		}
		r := BridgeResult{Observed: c.o}
		r.judge()
		if other, twice := seen[r.Summary]; twice || r.Summary == "" || r.Pass != (c.want == "") {
			t.Errorf("%s: summary %q, also of %s", c.want, r.Summary, other)
		}
		seen[r.Summary] = c.want
	}
}
