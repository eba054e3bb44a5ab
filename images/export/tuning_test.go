package export

import (
	"strings"
	"testing"

	"nodegate/internal/assert"
)

// TestTuning: udev and Talos carry numbers; the driver's maximum is named as a gap.
func TestTuning(t *testing.T) {
	in := loadInput(t, `
link "card" {
  match { name = "eth0" }
  ring     = { rx = 512, tx = "max" }
  channels = { combined = 2 }
  coalesce = { adaptive-rx = true, rx-usecs = 50 }
}`, Delivery{})
	files, rules := writeFormat(t, "files", in), ""
	for _, f := range files.Tree {
		if strings.HasSuffix(f.Path, ".rules") {
			rules = string(f.Content)
		}
	}
	for _, want := range []string{
		`RUN+="/sbin/ethtool -L $name combined 2", RUN+="/sbin/ethtool -G $name rx 512", RUN+="/sbin/ethtool -C $name adaptive-rx on rx-usecs 50"`,
		"NOT HERE: link.card: ring.tx is the driver's maximum",
	} {
		assert.True(t, strings.Contains(rules, want), "%s is missing:\n%s", want, rules)
	}
	talos := string(writeFormat(t, "talos", in).Text)
	for _, want := range []string{
		"rings:\n  rx: 512\nchannels:\n  combined: 2\n", "NOT HERE: link.card: ring.tx is", "NOT HERE: link.card: Talos does not set coalesce.rx-usecs",
	} {
		assert.True(t, strings.Contains(talos, want), "%s is missing:\n%s", want, talos)
	}
}
