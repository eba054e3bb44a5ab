package qemu

import (
	"slices"
	"testing"
)

// TestDisk: a throwaway disk is only read, its format is never guessed, and a name with a comma
// stays one name.
func TestDisk(t *testing.T) {
	for want, disk := range map[string]Disk{
		"if=virtio,cache=unsafe,format=raw,file=/a,,b,snapshot=on": {File: "/a,b", Format: "raw", Throwaway: true},
		"if=virtio,cache=unsafe,format=qcow2,file=/a":              {File: "/a", Format: "qcow2"},
	} {
		if args := (Machine{Accelerator: TCG, Disk: disk}).arguments(); !slices.Contains(args, want) {
			t.Errorf("%q has no %s", args, want)
		}
	}
}

// TestPorts: the guest can recognise its first port before udev has created it; a machine without
// ports announces none.
func TestPorts(t *testing.T) {
	with := Machine{Accelerator: TCG, Ports: []string{"a", "b"}}.arguments()
	if !slices.Contains(with, "type=1,family=a") {
		t.Errorf("%q does not announce the first port", with)
	}
	if without := (Machine{Accelerator: TCG}).arguments(); slices.Contains(without, "-smbios") {
		t.Errorf("%q announces a port", without)
	}
}
