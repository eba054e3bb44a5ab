package host

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"nodegate/internal/assert"
	"nodegate/internal/require"
)

// TestComplaint: an error does not name the values of kubelet's flags.
func TestComplaint(t *testing.T) {
	program := func(text string) string {
		name := filepath.Join(t.TempDir(), "kubelet")
		require.NoError(t, os.WriteFile(name, []byte("#!/bin/sh\n"+text+"\n"), 0o755))
		return name
	}
	const flag = "--token=S3cret"
	kernel := machineKernel{Marked(machineFiles{})}
	said, err := kernel.Complaint(t.Context(), program("echo one >&2; echo two >&2; exit 1"), flag)
	assert.True(t, said == "one; (value left out)" && err == nil, "a kubelet that exits: %q, %v", said, err)
	if said, err := kernel.Complaint(t.Context(), program("echo one >&2"), flag); said != "" || err != nil {
		t.Errorf("a kubelet that succeeds: %q, %v", said, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = kernel.Complaint(ctx, program("exec sleep 9"), flag)
	assert.True(t, err != nil && !strings.Contains(err.Error(), "S3cret"), "a slow kubelet: %v", err)
}
