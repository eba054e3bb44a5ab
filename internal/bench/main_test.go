package main

import (
	"os/exec"
	"testing"

	"nodegate/internal/assert"
)

// TestFloor: the package of the floor program exists.
func TestFloor(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", floorPackage).CombinedOutput()
	assert.True(t, err == nil, "%v\n%s", err, out)
}
