package boot_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"nodegate/internal/assert"
	"nodegate/internal/host"
	"nodegate/internal/host/boot"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

// again returns a command that asks systemd about the boot of root's units, in a process of its own: AskInChild.
func again(t *testing.T, root string, before ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), "unshare", "-m", "sh", "-euc", strings.Join(before, "\n")+"\n"+`exec "$0" -test.v -test.run TestAskInChild`, self)
	cmd.Env = append(os.Environ(), "NODEGATE_ROOT="+root)
	return cmd
}

// TestAskInChild is the child of the tests below.
func TestAskInChild(t *testing.T) {
	root := os.Getenv("NODEGATE_ROOT")
	if root == "" {
		return
	}
	h, err := host.Open(root)
	require.NoError(t, err)
	for range 2 {
		b, err := boot.Test(t.Context(), h.Files, "kubelet.service")
		t.Logf("state %s, starts %t: %v", b.Unit.State, b.Unit.Starts, err)
	}
	if os.Getenv("NODEGATE_STAY") != "" {
		for {
			_, _ = boot.Test(t.Context(), h.Files, "kubelet.service")
		}
	}
}

func kubeletImage(t *testing.T) string {
	return image(t, map[string]string{"etc/systemd/system/kubelet.service": "[Service]\nExecStart=/usr/bin/kubelet\n",
		"usr/lib/systemd/system/multi-user.target.d/a.conf": "[Unit]\nUpholds=kubelet.service\n"})
}

// TestChroot: a chroot without /proc, /sys, /run/systemd and /dev, below a mount that is shared with others, has an answer, and no mount
// stays.
func TestChroot(t *testing.T) {
	hosttest.NeedRoot(t)
	hosttest.NeedProgram(t, "/usr/lib/systemd/systemd")
	dir := t.TempDir()
	cmd := again(t, "/image", "mount --make-rshared /", "mkdir -p "+dir+"/root; cd "+dir+"/root",
		"mkdir usr proc sys run dev etc tmp image; chmod 755 .; for l in bin sbin lib lib64; do ln -s usr/$l $l; done",
		"mount --rbind -o ro /usr usr; mount --bind "+kubeletImage(t)+" image; cp $0 tmp/self; before=$(wc -l </proc/self/mountinfo)",
		"chroot . /tmp/self -test.v -test.run TestAskInChild; test $before = $(wc -l </proc/self/mountinfo) && echo no mount left; exit")
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Count(string(out), "state loaded, starts true: <nil>") != 2 || !strings.Contains(string(out), "no mount left") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestKilled: a killed process leaves no copy of the units.
func TestKilled(t *testing.T) {
	hosttest.NeedRoot(t)
	hosttest.NeedProgram(t, "/usr/lib/systemd/systemd")
	temporary := t.TempDir()
	cmd := again(t, kubeletImage(t))
	cmd.Env = append(cmd.Env, "NODEGATE_STAY=1", "TMPDIR="+temporary)
	require.NoError(t, cmd.Start())
	time.Sleep(time.Second)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	left, err := os.ReadDir(temporary)
	copies, _ := filepath.Glob("/tmp/*/multi-user.target")
	assert.True(t, err == nil && len(left) == 0 && copies == nil, "%v %v: %v", left, copies, err)
}
