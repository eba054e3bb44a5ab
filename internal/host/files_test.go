package host_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

const conntrackStat = "/proc/net/stat/nf_conntrack"

// countersRead prints conntrack's counters as checks read them, and returns 2 if there are none.
func countersRead() int {
	h, err := host.Open("/")
	if err != nil {
		return 1
	}
	text, err := h.Text(conntrackStat)
	fmt.Println(text, err)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 2
	case err != nil:
		return 1
	}
	return 0
}

// TestConntrackWithoutItsFile: the counters can be read on a kernel without
// CONFIG_NF_CONNTRACK_PROCFS; without nf_conntrack the kernel is not queried.
func TestConntrackWithoutItsFile(t *testing.T) {
	hosttest.NeedRoot(t)
	_, err := os.Stat("/proc/sys/net/netfilter/nf_conntrack_count")
	hosttest.Need(t, err == nil, "nf_conntrack in the kernel: modprobe nf_conntrack")
	for parameter, want := range map[string]int{"nf_conntrack_count": 0, "another": 2} {
		const script = `mount -t tmpfs none /proc && mkdir -p /proc/sys/net/netfilter && : >"/proc/sys/net/netfilter/$1" && exec "$2"`
		cmd := exec.Command("sh", "-c", script, "sh", parameter, os.Args[0])
		cmd.Env = append(os.Environ(), outletsVariable+"=conntrack")
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		out, _ := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != want || want == 0 && !strings.Contains(string(out), "insert_failed drop early_drop") {
			t.Errorf("with %s: exit code %d, want %d: %s", parameter, got, want, out)
		}
	}
}

// TestTreeLinks: a symbolic link in the path of a name is followed below the root, absolute or not; the name itself is not followed.
func TestTreeLinks(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"/usr/lib/sysctl.d", "/etc"} {
		require.NoError(t, os.MkdirAll(root+dir, 0o755))
	}
	for name, to := range map[string]string{
		"/lib": "/usr/lib", "/usr/lib/sysctl.d/10-off.conf": "/dev/null", "/etc/out": "../../../../etc", "/etc/gone": "/nowhere",
	} {
		require.NoError(t, os.Symlink(to, root+name))
	}
	h, err := host.Open(root)
	require.NoError(t, err)
	for name, want := range map[string]string{
		"/lib/sysctl.d/10-off.conf": "/dev/null", "/usr/lib/sysctl.d/10-off.conf": "/dev/null", "/lib": "/usr/lib", "/etc/gone": "/nowhere",
		"/etc/out/gone": "/nowhere", "/lib/../lib": "/usr/lib",
	} {
		if to, err := h.Files.ReadLink(name); to != want || err != nil {
			t.Errorf("%s: %q, %v, want %q", name, to, err, want)
		}
		if is, err := h.Files.Exists(name); !is || err != nil {
			t.Errorf("%s: %t, %v", name, is, err)
		}
	}
	for _, name := range []string{"/etc/passwd", "/etc/out/passwd", "/etc/gone/x", "/lib/x/y"} { // these exist only outside the root
		if is, err := h.Files.Exists(name); is || err != nil {
			t.Errorf("%s: %t, %v", name, is, err)
		}
		if to, err := h.Files.ReadLink(name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %q, %v", name, to, err)
		}
	}
	_, err = h.Files.ReadLink("/etc")
	assert.True(t, errors.Is(err, syscall.EINVAL), "a directory: %v", err)
}
