package export

import (
	"slices"
	"strings"
	"testing"

	"nodegate/units"
)

// timed is what brings a unit that a timer starts.
const timed = `publish { by = "timer" }` + "\n"

// TestTimed: the unit that the timer starts is brought, and not enabled: it has no [Install].
func TestTimed(t *testing.T) {
	for name, d := range deliveries() {
		for _, format := range []string{"cloud-init", "kubeadm", "butane", "ignition"} {
			var got struct {
				RunCmd [][]string
				Spec   struct {
					PreKubeadmCommands []string `yaml:"preKubeadmCommands"`
				}
				Systemd struct{ Units []ignitionUnit }
			}
			text := write(t, format, input(t, testPolicy+timed, d)).Text
			decode(t, text, &got)
			var enabled []string
			for _, words := range got.RunCmd {
				enabled = append(enabled, words...)
			}
			for _, line := range got.Spec.PreKubeadmCommands {
				enabled = append(enabled, strings.Fields(line)...)
			}
			for _, u := range got.Systemd.Units {
				if u.Enabled {
					enabled = append(enabled, u.Name)
				}
			}
			if !strings.Contains(string(text), "nodegate-publish.service") || slices.Contains(enabled, "nodegate-publish.service") ||
				!slices.Contains(enabled, units.PublishTimer) || !slices.Contains(enabled, units.WatchUnit) {
				t.Errorf("%s, %s: enabled are %v", format, name, enabled)
			}
		}
	}
}
