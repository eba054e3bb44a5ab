package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"nodegate/internal/assert"
	"nodegate/internal/host"
)

// TestAtMostEvery: watch, whose rounds may be a second apart, repeats a proof instead of the packets.
func TestAtMostEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := map[string]int{}
		prove := atMostEvery(27*time.Second, func(_ context.Context, _ *host.Host, p host.Probe) (host.Proof, error) {
			calls[p.Address]++
			return host.Proof{Pass: p.Address == "a"}, nil
		})
		for range 60 {
			for _, address := range []string{"a", "b"} {
				proof, err := prove(t.Context(), nil, host.Probe{Name: "service", Address: address})
				assert.Equal(t, proof.Pass && err == nil, address == "a", address)
			}
			time.Sleep(time.Second)
		}
		assert.Diff(t, calls, map[string]int{"a": 3, "b": 3})
	})
}
