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

// imageFormat returns qcow2 or raw. QEMU must not guess the format: a guest could write to its raw disk a qcow2 header that
// names any file of this machine. bare allows a file system without a boot sector.
func imageFormat(name string, bare bool) (string, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // opening a named pipe must not block
	if err != nil {
		return "", fmt.Errorf("reading the image: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("reading the image: %w", err)
	}
	if info.IsDir() {
		return "", fmt.Errorf("%s is a directory; for a file tree run `nodegate check --root %s`", name, name)
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
			return "", fmt.Errorf("%s is %s; convert it with `qemu-img convert -O qcow2 %s image.qcow2`", name, other.what, name)
		}
	}
	for _, magic := range []string{"\x1f\x8b", "\xfd7zXZ\x00", "\x28\xb5\x2f\xfd", "BZh"} {
		if bytes.HasPrefix(head, []byte(magic)) {
			return "", fmt.Errorf("%s is compressed; unpack it first", name)
		}
	}
	switch {
	case bytes.HasPrefix(head, []byte("QFI\xfb")):
		return "qcow2", nil
	case bytes.HasSuffix(head, []byte{0x55, 0xaa}), bare && info.Size() >= 1<<20:
		return "raw", nil
	}
	return "", fmt.Errorf("%s is not a disk image; give a qcow2 image, a raw disk with a boot sector, or a file system with --kernel", name)
}

// testPolicy is the path of the test's policy in the machine. It replaces every other policy file there.
const testPolicy = units.PolicyDir + "/image-test.hcl"

// installPolicy returns the QEMU arguments that install the test's policy in the machine, and a function that removes their file. QEMU
// passes systemd a credential, from which systemd-tmpfiles writes files before kubelet starts (tmpfiles.d(5), systemd 252). The owner
// of a virtual machine can do that anyway, and nodegate needs no other way to receive a policy than its own directory.
func (t Test) installPolicy() ([]string, func(), error) {
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

// usesTestPolicy reports whether a report was made with the test's policy.
func usesTestPolicy(r report.Report) bool { return slices.Equal(r.Policy.Files, []string{testPolicy}) }
