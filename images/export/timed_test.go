package export

import (
	"slices"
	"strings"
	"testing"

	"nodegate/units"
)

// timed is a policy block that adds a unit started by a timer.
const timed = `publish { by = "timer" }` + "\n"

// TestTimed: the unit that the timer starts is exported but not enabled, because it has no [Install].
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
			text := writeFormat(t, format, loadInput(t, testPolicy+timed, d)).Text
			decodeYAML(t, text, &got)
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
				t.Errorf("%s, %s: enabled units: %v", format, name, enabled)
			}
		}
	}
}
