//go:build !cgo

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

// TestApplyConfined: if systemd gave apply a directory, apply changes the machine and files in that directory, and no other
// file. The test needs the binary as it is shipped.
func TestApplyConfined(t *testing.T) {
	hosttest.NeedRoot(t)
	hosttest.NeedProgram(t, "unshare")
	_, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	hosttest.Need(t, errno == 0, "Landlock in the kernel")
	policy := filepath.Join(t.TempDir(), "policy.hcl")
	require.NoError(t, os.WriteFile(policy, []byte(`sysctl "net.ipv4.tcp_syn_retries" { value = 9 }`), 0o644))
	const script = `mount -t tmpfs tmpfs /run; nodegate apply --policy "$1" --output "$2/report" 2>&1; cat /proc/sys/net/ipv4/tcp_syn_retries`
	own, other := t.TempDir(), t.TempDir()
	for _, c := range []struct{ folder, writes, want string }{
		{own, own, "9"},
		{own, other, "nodegate: writing --output: open " + other + "/report: permission denied"},
		{"", other, "9"},
	} {
		cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "--net", "sh", "-euc", script, "sh", policy, c.writes)
		cmd.Env = append(os.Environ(), "RUNTIME_DIRECTORY="+c.folder)
		out, err := cmd.CombinedOutput()
		if got := strings.TrimSpace(string(out)); got != c.want || (err == nil) != (c.want == "9") {
			t.Errorf("with the directory %q, writing to %q: %q, %v, want %q", c.folder, c.writes, got, err, c.want)
		}
	}
}
