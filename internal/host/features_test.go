package host_test

import (
	"os/exec"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
)

// TestFeatures: every feature has the state that ethtool prints.
func TestFeatures(t *testing.T) {
	hosttest.NeedRoot(t)
	hosttest.NeedProgram(t, "ethtool")
	inScratch(t, func(h *host.Host) error {
		features, err := h.Links.Features(t.Context(), "lo")
		if err != nil {
			return err
		}
		out, err := exec.CommandContext(t.Context(), "ethtool", "-k", "lo").Output()
		if err != nil {
			return err
		}
		compared := 0
		for line := range strings.Lines(string(out)) {
			name, state, _ := strings.Cut(strings.TrimSpace(line), ": ")
			f, known := features[name] // the other lines are groups that ethtool defines itself
			if !known {
				continue
			}
			compared++
			fixed := f.NeverChanged || !f.Available
			assert.True(t, f.Active == strings.HasPrefix(state, "on") && fixed == strings.Contains(state, "[fixed]"),
				"%s is %+v, ethtool prints %s", name, f, state)
		}
		assert.True(t, compared >= 20, "only %d of %d features are compared:\n%s", compared, len(features), out)
		return nil
	})
}
