package qemu

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
)

// The accelerators. Auto means KVM if this process may use it, else TCG, which is slow but works
// everywhere.
const (
	Auto = "auto"
	KVM  = "kvm"
	TCG  = "tcg"
)

// Accelerator resolves Auto, and returns an error for an unknown accelerator.
func Accelerator(asked string) (string, error) {
	switch asked {
	case KVM, TCG:
		return asked, nil
	case Auto:
		f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
		if err != nil {
			return TCG, nil
		}
		return KVM, f.Close()
	}
	return "", fmt.Errorf("unknown accelerator %q; known accelerators: auto, kvm, tcg", asked)
}

// The kinds of firmware.
const (
	BIOS = "bios"
	UEFI = "uefi"
)

// Firmware returns QEMU's arguments for a kind of firmware. Changes of UEFI's variables by the
// guest are lost when QEMU ends.
func Firmware(kind string) ([]string, error) {
	switch kind {
	case BIOS:
		return nil, nil
	case UEFI:
		for _, files := range [][2]string{
			{"/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd"},         // Debian, Ubuntu
			{"/usr/share/OVMF/OVMF_CODE.fd", "/usr/share/OVMF/OVMF_VARS.fd"},               // older releases of both
			{"/usr/share/edk2/ovmf/OVMF_CODE.fd", "/usr/share/edk2/ovmf/OVMF_VARS.fd"},     // Fedora
			{"/usr/share/edk2/x64/OVMF_CODE.4m.fd", "/usr/share/edk2/x64/OVMF_VARS.4m.fd"}, // Arch
		} {
			if _, err := os.Stat(files[0]); err == nil {
				return []string{
					"-drive", "if=pflash,unit=0,format=raw,readonly=on,file=" + files[0],
					"-drive", "if=pflash,unit=1,format=raw,snapshot=on,file=" + files[1],
				}, nil
			}
		}
		return nil, errors.New("no UEFI firmware for QEMU; run `apt-get install ovmf` or `dnf install edk2-ovmf`")
	}
	return nil, fmt.Errorf("unknown firmware %q; known kinds: bios, uefi", kind)
}

// findProgram returns QEMU's path.
func findProgram(asked string) (string, error) {
	if asked != "" {
		return asked, nil // exec finds it or returns an error
	}
	for _, name := range []string{"qemu-system-x86_64", "/usr/libexec/qemu-kvm"} {
		if found, err := exec.LookPath(name); err == nil {
			return found, nil
		}
	}
	return "", errors.New("qemu-system-x86_64 is not installed; run `apt-get install qemu-system-x86` or `dnf install qemu-kvm`")
}
