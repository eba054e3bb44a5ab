package host_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nodegate/internal/assert"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

// outletsVariable makes this test program the child process that writes to broken outlets.
const outletsVariable = "NODEGATE_TEST_OUTLETS"

func TestMain(m *testing.M) {
	switch os.Getenv(outletsVariable) {
	case "":
		os.Exit(m.Run())
	case "console":
		os.Exit(said(host.Console("held")))
	case "journal":
		os.Exit(said(host.Log(host.LevelError, "held\nby two lines", map[string]string{"NODEGATE_CHECK": "x"})))
	case "conntrack":
		os.Exit(countersRead())
	case "status":
		host.Status("held")
		os.Exit(0)
	}
}

func said(written bool) int {
	if written {
		return 0
	}
	return 1
}

// outlet makes one write in its own mount namespace, in which target is mounted over the outlet,
// and returns whether the write was accepted. A write that does not return fails the test.
func outlet(t *testing.T, what, over, target string, env ...string) bool {
	t.Helper()
	cmd := exec.Command("sh", "-c", `mount --bind "$1" "$2" && exec "$3"`, "sh", target, over, os.Args[0])
	if over == "" {
		cmd = exec.Command(os.Args[0])
	}
	cmd.Env = append(append(os.Environ(), outletsVariable+"="+what), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	require.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		return err == nil
	case <-time.After(20 * time.Second):
		_ = cmd.Process.Kill()
		t.Fatalf("writing to the %s does not return", what)
	}
	return false
}

// TestStoppedConsole: a console that was paused with Ctrl-S, or that no program reads.
func TestStoppedConsole(t *testing.T) {
	hosttest.NeedRoot(t)
	if _, err := os.Stat("/dev/console"); err != nil {
		t.Log("this machine has no /dev/console: one is made for the test")
		require.NoError(t, unix.Mknod("/dev/console", unix.S_IFCHR|0o600, int(unix.Mkdev(5, 1))))
		defer func() { _ = os.Remove("/dev/console") }()
	}
	_, name := terminal(t)
	slave, err := os.OpenFile(name, os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	defer slave.Close()
	assert.True(t, outlet(t, "console", "/dev/console", name), "a console with a reader did not accept the line")
	if err := unix.IoctlSetInt(int(slave.Fd()), unix.TCXONC, 0); err != nil { // TCOOFF
		t.Fatal(err)
	}
	assert.True(t, !outlet(t, "console", "/dev/console", name), "a stopped console accepted the line")
}

// terminal opens a pseudo-terminal, and returns its other end and its name.
func terminal(t *testing.T) (*os.File, string) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = master.Close() })
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	require.NoError(t, err)
	return master, filepath.Join("/dev/pts", strconv.Itoa(n))
}

// TestHungJournal: journald and systemd have sockets, and do not read them.
func TestHungJournal(t *testing.T) {
	hosttest.NeedRoot(t)
	dir := t.TempDir()
	for _, c := range []struct{ what, path string }{{"journal", filepath.Join(dir, "systemd/journal/socket")},
		{"status", filepath.Join(dir, "notify")}} {
		require.NoError(t, os.MkdirAll(filepath.Dir(c.path), 0o755))
		l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: c.path, Net: "unixgram"})
		require.NoError(t, err)
		defer func() { _ = l.Close() }()
		send := func() bool {
			if c.what == "status" {
				return outlet(t, "status", "", "", "NOTIFY_SOCKET="+c.path)
			}
			return outlet(t, "journal", "/run", dir)
		}
		assert.True(t, send(), "a %s with a reader did not accept the message", c.what)
		b := make([]byte, 4096)
		count, err := l.Read(b)
		got := string(b[:count])
		assert.True(t, err == nil && strings.Contains(got, "held"), "the %s received %q, %v", c.what, got, err)
		fill(t, c.path)
		assert.True(t, !send() || c.what != "journal", "a journal without a reader accepted the message")
	}
}

// fill writes to a socket until its queue is full: systemd sets its length to 512 messages, which is more than the buffer of one sender.
func fill(t *testing.T, path string) {
	t.Helper()
	for range 100 {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		require.NoError(t, err)
		defer func() { _ = unix.Close(fd) }()
		sent := 0
		for unix.Sendto(fd, []byte("x"), 0, &unix.SockaddrUnix{Name: path}) == nil {
			sent++
		}
		if sent == 0 {
			return
		}
	}
	t.Fatal("the queue does not fill up")
}
