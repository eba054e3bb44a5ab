package host_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

// TestReportPort: the image test receives the report. Neither a machine without such a port nor a
// test that does not read delays the gate.
func TestReportPort(t *testing.T) {
	hosttest.NeedRoot(t)
	const dir = "/dev/virtio-ports"
	if !outlet(t, "port", "", "") {
		t.Error("a machine without the port is an error")
	}
	if err := os.Mkdir(dir, 0o755); err == nil {
		defer func() { _ = os.Remove(dir) }()
	}
	ports := t.TempDir()
	port := filepath.Join(ports, host.ReportPort)
	require.NoError(t, unix.Mkfifo(port, 0o600))
	if outlet(t, "port", dir, ports) {
		t.Error("a port without a reader accepted the text")
	}
	tester, err := os.OpenFile(port, os.O_RDWR|unix.O_NONBLOCK, 0)
	require.NoError(t, err)
	defer tester.Close()
	text := make([]byte, 4096)
	if !outlet(t, "port", dir, ports) {
		t.Error("a port with a reader did not accept the text")
	}
	if n, err := tester.Read(text); err != nil || string(text[:n]) != "held\n" {
		t.Errorf("it read %q, %v", text[:n], err)
	}
	_ = tester.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	if _, err := tester.Write(make([]byte, 1<<20)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the port does not fill up: %v", err)
	}
	if outlet(t, "port", dir, ports) {
		t.Error("a full port accepted the text")
	}
}

// TestReportPortOfTwo: only one program at a time has a virtio port open. A terminal refuses a
// second program too, unless it has CAP_SYS_ADMIN.
func TestReportPortOfTwo(t *testing.T) {
	hosttest.NeedRoot(t)
	hosttest.NeedProgram(t, "setpriv")
	const dir = "/dev/virtio-ports"
	if err := os.Mkdir(dir, 0o755); err == nil {
		defer func() { _ = os.Remove(dir) }()
	}
	tester, name := terminal(t)
	ports := t.TempDir()
	require.NoError(t, os.Symlink(name, filepath.Join(ports, host.ReportPort)))
	first, err := os.OpenFile(name, os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	defer first.Close()
	require.NoError(t, unix.IoctlSetInt(int(first.Fd()), unix.TIOCEXCL, 0))
	if outlet(t, "busy port", dir, ports) {
		t.Error("a port that another program has open accepted the text")
	}
	timer := time.AfterFunc(500*time.Millisecond, func() { _ = unix.IoctlSetInt(int(first.Fd()), unix.TIOCNXCL, 0) })
	defer timer.Stop()
	if !outlet(t, "busy port", dir, ports) {
		t.Fatal("a port that another program soon closed did not accept the text")
	}
	text := make([]byte, 100)
	if n, err := tester.Read(text); err != nil || string(text[:n]) != "held\r\n" {
		t.Errorf("it read %q, %v", text[:n], err)
	}
}

// TestReportPortComes: the machine announces an image test, but udev has not created the port yet.
func TestReportPortComes(t *testing.T) {
	hosttest.NeedRoot(t)
	const dir = "/dev/virtio-ports"
	if err := os.Mkdir(dir, 0o755); err == nil {
		defer func() { _ = os.Remove(dir) }()
	}
	ports, classes := t.TempDir(), t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(classes, "dmi/id"), 0o700))
	family := filepath.Join(classes, "dmi/id/product_family")
	require.NoError(t, os.WriteFile(family, append([]byte(host.ReportPort), bytes.Repeat([]byte("\n"), 4096-len(host.ReportPort))...), 0o600))
	if outlet(t, "announced port", dir, ports, "CLASSES="+classes) {
		t.Error("a port that never appears accepted the text")
	}
	port := filepath.Join(ports, host.ReportPort)
	tester := make(chan error, 1)
	timer := time.AfterFunc(500*time.Millisecond, func() { tester <- os.WriteFile(port, nil, 0o600) })
	defer timer.Stop()
	if !outlet(t, "announced port", dir, ports, "CLASSES="+classes) {
		t.Fatal("a port that appeared soon did not accept the text")
	}
	require.NoError(t, <-tester)
	if text, err := os.ReadFile(port); err != nil || string(text) != "held\n" {
		t.Errorf("it contains %q, %v", text, err)
	}
	require.NoError(t, errors.Join(os.Remove(port), os.WriteFile(family, []byte("\n"), 0o600)))
	if !outlet(t, "announced port", dir, ports, "CLASSES="+classes) {
		t.Error("a machine without the port is an error")
	}
}
