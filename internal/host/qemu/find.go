package qemu

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
)

// The accelerators. Auto is KVM where this process may use it, else TCG, which is slow and works everywhere.
const (
	Auto = "auto"
	KVM  = "kvm"
	TCG  = "tcg"
)

// Accelerator returns the accelerator that is meant.
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
	return "", fmt.Errorf("the accelerator is auto, kvm or tcg; %q is none of them", asked)
}

// The kinds of firmware.
const (
	BIOS = "bios"
	UEFI = "uefi"
)

// Firmware returns the arguments for a kind of firmware. What the guest writes into UEFI's variables is gone with QEMU.
func Firmware(kind string) ([]string, error) {
	switch kind {
	case BIOS:
		return nil, nil
	case UEFI:
		for _, files := range [][2]string{
			{"/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd"},         // Debian, Ubuntu
			{"/usr/share/OVMF/OVMF_CODE.fd", "/usr/share/OVMF/OVMF_VARS.fd"},               // their older ones
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
		return nil, errors.New("no UEFI firmware for QEMU: apt-get install ovmf, or dnf install edk2-ovmf")
	}
	return nil, fmt.Errorf("the firmware is bios or uefi; %q is neither", kind)
}

// findProgram returns QEMU's path.
func findProgram(asked string) (string, error) {
	if asked != "" {
		return asked, nil // exec finds it, or says that it cannot
	}
	for _, name := range []string{"qemu-system-x86_64", "/usr/libexec/qemu-kvm"} {
		if found, err := exec.LookPath(name); err == nil {
			return found, nil
		}
	}
	return "", errors.New("no qemu-system-x86_64: apt-get install qemu-system-x86, or dnf install qemu-kvm")
}
