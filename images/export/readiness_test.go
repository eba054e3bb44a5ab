package export

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"nodegate/internal/assert"
	"nodegate/internal/require"
)

// TestReadiness: each file is valid YAML, and those that wait for the condition use the policy's name for it.
func TestReadiness(t *testing.T) {
	waiting := 0
	for _, f := range writeFormat(t, "readiness", loadInput(t, `publish { condition = "example.com/Fit" }`, Delivery{})).Tree {
		in := yaml.NewDecoder(bytes.NewReader(f.Content))
		for {
			var document struct{ APIVersion, Kind string }
			err := in.Decode(&document)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Errorf("%s: %v", f.Path, err)
				break
			}
		}
		text := string(f.Content)
		assert.True(t, !strings.Contains(text, "@"), "%s: a placeholder is left:\n%s", f.Path, text)
		if strings.Contains(text, "- type: example.com/Fit") {
			waiting++
		}
	}
	assert.True(t, waiting == 3, "%d files wait for the condition, want 3", waiting)
	format, err := Find("readiness")
	require.NoError(t, err)
	if _, err := format.Write(loadInput(t, `use "kubernetes" {}`, Delivery{})); err == nil || !strings.Contains(err.Error(), "publish {}") {
		t.Errorf("without a publish block: %v", err)
	}
}
