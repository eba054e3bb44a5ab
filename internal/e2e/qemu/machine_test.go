package qemu

import (
	"slices"
	"testing"
)

// TestDisk: the disk's format is never guessed, and a name with a comma stays one name.
func TestDisk(t *testing.T) {
	args := Machine{Disk: Disk{File: "/a,b", Format: "raw"}}.arguments()
	if want := "if=virtio,cache=unsafe,format=raw,file=/a,,b"; !slices.Contains(args, want) {
		t.Errorf("%q lacks %s", args, want)
	}
}
