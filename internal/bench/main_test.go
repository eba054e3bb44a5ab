package main

import (
	"os/exec"
	"testing"
)

// TestFloor: the package of the floor program exists.
func TestFloor(t *testing.T) {
	if out, err := exec.CommandContext(t.Context(), "go", "list", floorPackage).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
