package imagetest

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"nodegate/cmd/nodegate/internal/report"
	"nodegate/units"
)

// imageFormat returns qcow2 or raw. QEMU is told, because it would guess: what a guest writes into a raw disk can make it a
// qcow2 that names any file of this machine. bare allows a file system without a boot sector.
func imageFormat(name string, bare bool) (string, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a named pipe would hang
	if err != nil {
		return "", fmt.Errorf("reading the image: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("reading the image: %w", err)
	}
	if info.IsDir() {
		return "", fmt.Errorf("%s: a directory; for a file tree use: nodegate check --root %s", name, name)
	}
	if mode := info.Mode(); !mode.IsRegular() && mode&(os.ModeDevice|os.ModeCharDevice) != os.ModeDevice {
		return "", fmt.Errorf("%s is neither a file nor a disk", name)
	}
	head := make([]byte, 512)
	if _, err := io.ReadFull(f, head); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return "", fmt.Errorf("reading the image: %w", err)
	}
	for _, other := range []struct{ magic, what string }{
		{"KDMV", "a VMDK"}, {"# Disk DescriptorFile", "a VMDK"}, {"conectix", "a VHD"}, {"vhdxfile", "a VHDX"}, {"<<< ", "a VDI"},
	} {
		if bytes.HasPrefix(head, []byte(other.magic)) {
			return "", fmt.Errorf("%s is %s: give it as qcow2: qemu-img convert -O qcow2 %s image.qcow2", name, other.what, name)
		}
	}
	for _, magic := range []string{"\x1f\x8b", "\xfd7zXZ\x00", "\x28\xb5\x2f\xfd", "BZh"} {
		if bytes.HasPrefix(head, []byte(magic)) {
			return "", fmt.Errorf("%s is compressed: unpack it first", name)
		}
	}
	switch {
	case bytes.HasPrefix(head, []byte("QFI\xfb")):
		return "qcow2", nil
	case bytes.HasSuffix(head, []byte{0x55, 0xaa}), bare && info.Size() >= 1<<20:
		return "raw", nil
	}
	return "", fmt.Errorf("%s is no disk image: neither a qcow2, nor a raw disk with a boot sector (a file system alone needs --kernel)", name)
}

// testPolicy is where the policy of the test lies in the machine, alone.
const testPolicy = units.PolicyDir + "/image-test.hcl"

// inForce returns the arguments that put the test's policy in force, and what removes their file. QEMU offers systemd a credential,
// from which its systemd-tmpfiles writes files before kubelet starts (tmpfiles.d(5), systemd 252): whoever runs a virtual machine
// can do that anyway, and nodegate itself reads a policy from nowhere else than its directory.
func (t Test) inForce() ([]string, func(), error) {
	if t.Policy == nil {
		return nil, func() {}, nil
	}
	dir, err := os.MkdirTemp("", "nodegate-image-test-")
	if err != nil {
		return nil, nil, err
	}
	name := filepath.Join(dir, "tmpfiles.extra")
	lines := fmt.Sprintf("r %s/*.hcl\nr %s/*.hcl.json\nf+~ %s 0644 root root - %s\n", units.PolicyDir, units.PolicyDir, testPolicy,
		base64.StdEncoding.EncodeToString(t.Policy))
	if err := os.WriteFile(name, []byte(lines), 0o600); err != nil {
		os.RemoveAll(dir)
		return nil, nil, err
	}
	return []string{"-fw_cfg", "name=opt/io.systemd.credentials/tmpfiles.extra,file=" + name}, func() { os.RemoveAll(dir) }, nil
}

// inForce reports whether a report is on the test's policy.
func inForce(r report.Report) bool { return slices.Equal(r.Policy.Files, []string{testPolicy}) }
