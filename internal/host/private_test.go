package host

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestKubeletFlagsAreNotPrinted: no error names the values of kubelet's flags.
func TestKubeletFlagsAreNotPrinted(t *testing.T) {
	program := func(text string) string {
		name := filepath.Join(t.TempDir(), "kubelet")
		if err := os.WriteFile(name, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return name
	}
	const flag = "--token=S3cret"
	refuses := program(`echo 'E1 run.go:74] "command failed" err="failed to parse kubelet flag: invalid argument \"S3cret\" for \"--x\" flag"' >&2; exit 1`)
	_, err := machineKernel{}.Version(t.Context(), refuses, flag)
	if err == nil || strings.Contains(err.Error(), "S3cret") || !strings.Contains(err.Error(), `failed to parse kubelet flag`) ||
		!strings.Contains(err.Error(), `--x`) {
		t.Errorf("a refused flag: %v", err)
	}
	said, err := machineKernel{}.Complaint(t.Context(), refuses, flag)
	if err != nil || strings.Contains(said, "S3cret") {
		t.Errorf("a refused flag: %q, %v", said, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := (machineKernel{}).Version(ctx, program("exec sleep 9"), flag); err == nil || strings.Contains(err.Error(), "S3cret") {
		t.Errorf("a slow kubelet: %v", err)
	}
	if _, err := (machineKernel{}).Version(t.Context(), program("exit 1"), flag); err == nil || strings.Contains(err.Error(), "S3cret") {
		t.Errorf("a silent kubelet: %v", err)
	}
}
