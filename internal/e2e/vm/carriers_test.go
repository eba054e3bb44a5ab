//go:build vm

package vm

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/require"
)

// TestCarriers delivers one policy to a machine with every carrier. The carrier's own tool does the work, or a stand-in in this
// directory if Debian lacks the tool. The result must equal the result of `nodegate apply`, except where the export announced a lack.
func TestCarriers(t *testing.T) {
	t.Parallel()
	scenarios, err := Load("carriers")
	require.NoError(t, err)
	r := newRunner(t)
	var mu sync.Mutex
	machines := map[string]map[string]string{}
	t.Run("carrier", func(t *testing.T) {
		for _, s := range scenarios {
			t.Run(s.Name, func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithTimeout(t.Context(), wholeTime)
				defer cancel()
				snapshot := ""
				r := r
				r.Log = func(format string, args ...any) {
					for line := range strings.Lines(fmt.Sprintf(format, args...)) {
						if taken, ok := strings.CutPrefix(line, "SNAPSHOT "); ok {
							snapshot = strings.TrimSpace(taken)
						} else {
							t.Log(strings.TrimRight(line, "\n"))
						}
					}
				}
				require.NoError(t, r.Run(ctx, s))
				found := replaySnapshot(t, r.Nodegate, snapshot)
				mu.Lock()
				machines[s.Name] = found
				mu.Unlock()
			})
		}
	})
	want := machines["apply"]
	require.True(t, len(want) >= 15, "the machine with nodegate apply has only %d requirements: too few to compare", len(want))
	for _, s := range scenarios {
		lacks := announcedLacks(t, r.Nodegate, s.Name)
		for _, name := range slices.Sorted(maps.Keys(want)) {
			got, there := machines[s.Name][name]
			switch {
			case got == want[name] && there:
			case slices.Contains(lacks, name):
				t.Logf("%s: %s is %q, by apply %q: announced", s.Name, name, got, want[name])
			default:
				t.Errorf("%s: %s is %q, by apply %q, and the export did not announce it", s.Name, name, got, want[name])
			}
		}
		assert.Diff(t, len(machines[s.Name]), len(want), "%s: the requirements differ", s.Name)
	}
}

// replaySnapshot replays a snapshot and returns the result and the verdict of each requirement.
func replaySnapshot(t *testing.T, nodegate, snapshot string) map[string]string {
	t.Helper()
	text, err := base64.StdEncoding.DecodeString(snapshot)
	require.True(t, err == nil && len(text) != 0, "reading the snapshot: %v", err)
	file := filepath.Join(t.TempDir(), "snapshot.json")
	require.NoError(t, os.WriteFile(file, text, 0o644))
	out, err := exec.CommandContext(t.Context(), nodegate, "check", "--snapshot", file, "--policy", "carriers.hcl", "--stage", "boot",
		"--format", "json").Output()
	var report struct {
		Results []struct{ Name, Verdict, Got string }
	}
	require.True(t, json.Unmarshal(out, &report) == nil, "check --snapshot: %v\n%s", err, out)
	all := map[string]string{}
	for _, res := range report.Results {
		if kind, _, _ := strings.Cut(res.Name, "."); kind == "module" || kind == "sysctl" || kind == "link" {
			all[res.Name] = res.Verdict + " " + res.Got
		}
	}
	return all
}

// announcedLacks returns the names that an export reports as impossible to express.
func announcedLacks(t *testing.T, nodegate, format string) []string {
	t.Helper()
	if format == "apply" {
		return nil
	}
	args := []string{"export", format, "--policy", "carriers.hcl", "--output", filepath.Join(t.TempDir(), "out")}
	if format == "daemonset" {
		args = append(args, "--image", "ghcr.io/example/nodegate@sha256:"+strings.Repeat("0", 64))
	}
	cmd := exec.CommandContext(t.Context(), nodegate, args...)
	var said strings.Builder
	cmd.Stderr = &said
	err := cmd.Run()
	require.True(t, err == nil, "export %s: %v\n%s", format, err, said.String())
	var names []string
	for line := range strings.Lines(said.String()) {
		if _, lack, ok := strings.Cut(line, " cannot express "); ok {
			name, _, _ := strings.Cut(lack, ": ")
			names = append(names, name)
		}
	}
	return names
}
