package qemu

import (
	"slices"
	"testing"

	"nodegate/internal/assert"
)

// TestDisk: the disk's format is never guessed, and a name with a comma stays one name.
func TestDisk(t *testing.T) {
	args := Machine{Disk: Disk{File: "/a,b", Format: "raw"}}.arguments()
	want := "if=virtio,cache=unsafe,format=raw,file=/a,,b"
	assert.True(t, slices.Contains(args, want), "%q lacks %s", args, want)
}
