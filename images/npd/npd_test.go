// Package npd tests the configuration for node-problem-detector.
package npd

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
	"nodegate/units"
)

// TestMonitor runs the plugin as node-problem-detector does: the command exists, ends within the time
// limit, and its output fits the limit for messages.
func TestMonitor(t *testing.T) {
	hosttest.NeedProgram(t, "go")
	text := require.ReadFile(t, "nodegate-monitor.json")
	var c struct {
		Plugin       string
		PluginConfig struct {
			Timeout         string `json:"timeout"`
			MaxOutputLength int    `json:"max_output_length"`
		}
		Conditions []struct{ Type, Reason, Message string }
		Rules      []struct {
			Type, Condition, Reason, Path, Timeout string
			Args                                   []string
		}
	}
	require.NoError(t, json.Unmarshal(text, &c))
	require.True(t, c.Plugin == "custom" && len(c.Rules) == 1 && len(c.Conditions) == 1 && c.Rules[0].Condition == c.Conditions[0].Type,
		"want one rule for one condition: %+v", c)
	assert.Equal(t, c.Rules[0].Path, units.Binary, "the rule runs")
	limit, err := time.ParseDuration(c.Rules[0].Timeout)
	require.NoError(t, err)
	binary := filepath.Join(t.TempDir(), "nodegate")
	if out, err := exec.Command("go", "build", "-o", binary, "nodegate/cmd/nodegate").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.Command(binary, c.Rules[0].Args...)
	cmd.WaitDelay = time.Second
	timer := time.AfterFunc(limit, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	out, _ := cmd.Output() // the verdict about this machine does not matter
	code := cmd.ProcessState.ExitCode()
	assert.True(t, code >= 0 && code <= 2, "node-problem-detector does not know exit status %d", code)
	assert.True(t, len(out) != 0 && len(out) <= c.PluginConfig.MaxOutputLength+1,
		"%d bytes: %q; want 1 to %d and a line feed", len(out), out, c.PluginConfig.MaxOutputLength)
}
