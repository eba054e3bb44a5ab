package host_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
	"nodegate/internal/ruleset"
)

// otherTable is a table of another program, with text that its author chose.
const otherTable = `{"nftables": [
{"table": {"family": "inet", "name": "fw"}},
{"set": {"family": "inet", "name": "bad", "table": "fw", "type": "ipv4_addr", "elem": [{"elem": {"val": "10.0.0.1", "comment": "S3cret"}}]}},
{"chain": {"family": "inet", "table": "fw", "name": "fwd", "type": "filter", "hook": "forward", "prio": 0, "policy": "drop"}},
{"rule": {"family": "inet", "table": "fw", "chain": "fwd", "expr": [{"jump": {"target": "own"}}]}},
{"chain": {"family": "inet", "table": "fw", "name": "own"}}]}`

// TestRecordForeignTables: a snapshot holds the nft tables of other programs. The replay of an older snapshot reports that they are missing.
func TestRecordForeignTables(t *testing.T) {
	set, err := ruleset.Parse("nft", strings.NewReader(otherTable))
	if err != nil || len(set.Foreign) != 1 {
		t.Fatal(set, err)
	}
	recorder, s := host.Record((&hosttest.Machine{Tables: set.Foreign}).Host())
	want, err := recorder.Rulesets(t.Context())
	if err != nil || len(want) != 1 || want[0].Foreign[0].Chain("own") == nil {
		t.Fatal(want, err)
	}
	text, err := json.Marshal(s)
	if err != nil || strings.Contains(string(text), "S3cret") || !strings.Contains(string(text), "10.0.0.1") {
		t.Errorf("%v: %s", err, text)
	}
	replay := func(text string) []*ruleset.Set {
		again, err := host.ReadSnapshot(strings.NewReader(text))
		require.NoError(t, err)
		sets, err := host.Replay(again).Rulesets(t.Context())
		if err != nil || len(sets) != 1 {
			t.Fatal(sets, err)
		}
		return sets
	}
	if got := replay(string(text)); !reflect.DeepEqual(got, want) {
		t.Errorf("the replay has %+v, not %+v", got[0], want[0])
	}
	const kind = "nft tables of other programs"
	for _, broken := range []string{`[{"Chains":[null]}]`, `[{"Chains":[{"Rules":[null]}]}]`, `[{"Sets":{"x":null}}]`} {
		var damaged map[string]any
		require.NoError(t, json.Unmarshal(text, &damaged))
		damaged["answers"].(map[string]any)[kind] = map[string]any{"": map[string]any{"value": json.RawMessage(broken)}}
		changed, err := json.Marshal(damaged)
		if got := replay(string(changed))[0].Unread; err != nil || got == nil || !strings.Contains(got.Error(), "null") {
			t.Errorf("%s: %v, %v", broken, got, err)
		}
	}
	delete(s.Answers, kind)
	if text, err = json.Marshal(s); err != nil {
		t.Fatal(err)
	}
	if got := replay(string(text))[0].Unread; !errors.Is(got, host.ErrNotRecorded) {
		t.Errorf("a snapshot without the tables: %v", got)
	}
}
