package main

import (
	"testing"
	"time"

	"github.com/spf13/cobra"

	"nodegate/internal/require"
)

// TestLimit: a call that runs until it is stopped has no limit, even if its verb has a
// --timeout. Before, the DaemonSet's container ended every 30 s.
func TestLimit(t *testing.T) {
	for _, c := range []struct {
		verb *cobra.Command
		args []string
		want time.Duration
	}{
		{newCheck(), nil, defaultTimeout},
		{newCheck(), []string{"--timeout", "5s"}, 5 * time.Second},
		{newPublish(), []string{"--follow", "watch.json"}, 0},
		{newWatch(), nil, 0},
		{newGate(), nil, 0},
	} {
		require.NoError(t, c.verb.ParseFlags(c.args))
		if got, err := limitOf(c.verb); err != nil || got != c.want {
			t.Errorf("%s %q: %s, %v; want %s", c.verb.Name(), c.args, got, err, c.want)
		}
	}
}
