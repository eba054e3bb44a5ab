package export

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
	"nodegate/units"
)

// TestIgnitionValidates runs Ignition's own validator.
func TestIgnitionValidates(t *testing.T) {
	hosttest.NeedProgram(t, "ignition-validate")
	for name, d := range deliveries() {
		file := t.TempDir() + "/config.ign"
		require.NoError(t, os.WriteFile(file, writeFormat(t, "ignition", loadInput(t, testPolicy, d)).Text, 0o644))
		if out, err := exec.CommandContext(t.Context(), "ignition-validate", file).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// TestExtension: the file has the name that systemd expects, its checksum is verified, it is merged at
// boot, and the units run the binary inside it.
func TestExtension(t *testing.T) {
	hosttest.NeedProgram(t, "ignition-validate")
	d, err := ParseDelivery("https://example.com/nodegate-1.0.0-amd64.raw", strings.Repeat("0", 64), "", "")
	require.NoError(t, err)
	for _, f := range Formats() {
		in := loadInput(t, testPolicy, d)
		r, err := f.Write(in)
		if f.Name != "ignition" {
			assert.True(t, err != nil, "%s accepts a system extension as the binary", f.Name)
			continue
		}
		require.NoError(t, err)
		if text := string(r.Text); strings.Contains(text, units.Binary) || !strings.Contains(text, extensionFile) ||
			!strings.Contains(text, "systemd-sysext.service") {
			t.Errorf("%s:\n%s", f.Name, text)
		}
		file := t.TempDir() + "/config.ign"
		require.NoError(t, os.WriteFile(file, r.Text, 0o600))
		if out, err := exec.CommandContext(t.Context(), "ignition-validate", file).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%v\n%s", err, out)
		}
		var c ignitionConfig
		require.NoError(t, json.Unmarshal(r.Text, &c))
		if c.Storage.Files[0].Path != extensionFile || c.Storage.Files[0].Contents.Verification.Hash != "sha256-"+d.SHA256 ||
			c.Storage.Files[0].Mode != 0o644 {
			t.Errorf("%+v", c.Storage.Files[0])
		}
	}
}

// TestIgnitionFetches: Ignition itself fetches and verifies the binary, so there is no unit of ours for that.
func TestIgnitionFetches(t *testing.T) {
	text := string(writeFormat(t, "ignition", loadInput(t, testPolicy, deliveries()["url"])).Text)
	for _, want := range []string{`"path": "` + units.Binary + `"`, `"mode": 493`, `"hash": "sha256-` + sum + `"`} {
		assert.True(t, strings.Contains(text, want), "no %s in\n%s", want, text)
	}
	if paths := strings.Count(text, `"path":`); strings.Count(text, `"overwrite": true`) != paths || paths < 4 {
		t.Errorf("not all of the %d files overwrite those of the image", paths)
	}
	if strings.Contains(text, fetchUnit) {
		t.Error("a unit would fetch the binary again")
	}
}
