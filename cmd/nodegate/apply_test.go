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

// TestApplyOnConsole: systemd refuses a unit before it runs the gate, so apply's unit prints the reason on the console. Here systemd answers in
// its test mode, which writes below /run: hence the directory.
func TestApplyOnConsole(t *testing.T) {
	hosttest.NeedRoot(t)
	for _, program := range []string{"unshare", "systemctl"} {
		hosttest.NeedProgram(t, program)
	}
	const script = `mount -t tmpfs tmpfs /run; mkdir /run/units /run/dev; for f in null console; do : >/run/dev/$f; done
mount --bind /dev/null /run/dev/null; mount --rbind /run/dev /dev
mount --bind /run/units /etc/systemd/system; printf "[Service]\nExecStart=/bin/true\n$1\n" >/etc/systemd/system/kubelet.service
mkdir -p /etc/systemd/system/multi-user.target.wants; ln -s ../kubelet.service /etc/systemd/system/multi-user.target.wants/; echo 'check "kubelet.unit" {}' >/run/p.hcl; nodegate apply --policy /run/p.hcl --stage boot >&2 || true; cat /dev/console`
	for _, c := range []struct{ line, from, want string }{
		{"EnvironmentFile=/usr/lib/none/variables", "/", "/usr/lib/none/variables is missing: systemd runs no command of kubelet.service, not even the gate"},
		{"WorkingDirectory=/usr/lib/none", "/", "/usr/lib/none is missing: no command of kubelet.service starts, not even the gate"},
		{"WorkingDirectory=/usr/lib/none", "", ""}, // from a shell
		{"User=root", "/", ""},
	} {
		cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "--net", "sh", "-euc", script, "sh", c.line)
		cmd.Env = append(os.Environ(), "RUNTIME_DIRECTORY="+c.from)
		out, _ := cmd.Output()
		if got := string(out); (got == "") != (c.want == "") || !strings.Contains(got, c.want) || c.want != "" && !strings.Contains(got, "; ") {
			t.Errorf("%s in a service with %q: %q, want %q", c.line, c.from, got, c.want)
		}
	}
}
