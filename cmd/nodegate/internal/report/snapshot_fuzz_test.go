package report_test

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"
	"time"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/checks/checkstest"
	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/assert"
	"nodegate/internal/host"
	"nodegate/internal/require"
)

// FuzzSnapshot: no snapshot makes a check, or a renderer, panic.
func FuzzSnapshot(f *testing.F) {
	text := ""
	for _, name := range catalog.Known().Checks {
		text += "check \"" + name + "\" {}\n"
	}
	m := checkstest.Node(map[string]string{"/proc/swaps": "Filename\n/dev/sda2 partition 1 0 -2\n"},
		map[string]string{"net/ipv4/ip_forward": "1"})
	p := checkstest.Load(f, text+checkstest.ForwardPolicy)
	list := catalog.For(p, checks.All)
	recorded, snapshot := host.Record(m.Host())
	checks.Inspect(f.Context(), recorded, checks.All, list)
	seed, err := json.Marshal(snapshot)
	require.NoError(f, err)
	f.Add(seed)
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := host.ReadSnapshot(bytes.NewReader(text))
		if err != nil {
			return
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		h := host.Replay(s)
		r := report.New(h, p, checks.Inspect(ctx, h, checks.All, list))
		assert.NoError(t, r.Total(&bytes.Buffer{}, report.Plain))
	})
}
