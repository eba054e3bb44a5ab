package export

import (
	"strings"
	"testing"

	"nodegate/internal/assert"
)

// TestTuning: udev carries numbers; the driver's maximum is named as a gap.
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
}
