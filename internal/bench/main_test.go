package main

import (
	"os/exec"
	"testing"
)

// TestFloor: the program that is measured beside nodegate is where the bench looks for it.
func TestFloor(t *testing.T) {
	if out, err := exec.CommandContext(t.Context(), "go", "list", floorPackage).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
