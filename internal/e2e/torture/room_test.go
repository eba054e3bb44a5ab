//go:build torture

package torture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

// room runs nodegate in separate namespaces with a copy of this machine's /etc, without intercepting its system calls. All
// processes of a run end with it.
type room struct{ dir, nodegate string }

// heldPolicy never passes, and its gate gives up soon.
const heldPolicy = "module \"nodegate_no_such\" {}\ngate {\n  budget = \"300ms\"\n  interval = \"100ms\"\n}\n"

func newRoom(t *testing.T, policy string) room {
	hosttest.NeedRoot(t)
	r := room{scratchDir(t), nodegate(t)}
	require.NoError(t, runCommand("cp", "-a", "/etc", r.dir+"/etc"))
	require.NoError(t, errors.Join(os.RemoveAll(r.dir+"/etc/nodegate"), os.Mkdir(r.dir+"/etc/nodegate", 0o755)))
	writeFile(t, r.dir+"/policy", policy)
	return r
}

// enterRoom does not execute the program in its place: the first process of a namespace ignores most signals.
const enterRoom = `set -e
mount --make-rprivate /
mount -t proc proc /proc
mount --bind "$1/etc" /etc
for dir in /run /var/lib /etc/nodegate /srv; do mount -t tmpfs -o mode=755 tmpfs $dir; done
[ ! -e /dev/console ] || mount --bind /dev/null /dev/console
ip link set lo up
mkdir /etc/nodegate/policy.d
cat "$1/policy" >/etc/nodegate/policy.d/a.hcl
eval "$2" || exit 125
shift 2
set +e
"$@"`

// command returns a run after the shell commands of setup. Nothing of it is left behind after ctx has ended.
func (r room) command(ctx context.Context, setup string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/bin/sh", append([]string{"-c", enterRoom, "sh", r.dir, setup, r.nodegate}, args...)...)
	cmd.Dir = r.dir
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "TERM=xterm"}
	cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWUTS,
		Pdeathsig: unix.SIGKILL}
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// run returns the output and exit status of a run. A status above 128 is that of a signal.
func (r room) run(setup string, args ...string) (out string, status int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), runLimit)
	defer cancel()
	cmd := r.command(ctx, setup, args...)
	var text bytes.Buffer
	if cmd.Stdout == nil {
		cmd.Stdout, cmd.Stderr = &text, &text
	}
	status, err = finish(ctx, cmd)
	return text.String(), status, err
}

// finish runs a command to its end.
func finish(ctx context.Context, cmd *exec.Cmd) (status int, err error) {
	runtime.LockOSThread() // Pdeathsig refers to the thread that starts the program
	defer runtime.UnlockOSThread()
	err = cmd.Run()
	var failed *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return 0, fmt.Errorf("it did not end in %s", runLimit)
	case errors.As(err, &failed):
		return failed.ExitCode(), nil
	}
	return 0, err
}

// judgeHeld checks the end of a gate that must stay closed.
func judgeHeld(out string, status int, err error, reason string) error {
	switch {
	case err != nil:
		return err
	case status == 0:
		return fmt.Errorf("the gate let the unit start: %s", lastLines(out))
	case status < 0 || status > 128 || strings.Contains(out, "goroutine "):
		return fmt.Errorf("nodegate crashed with status %d: %s", status, lastLines(out))
	case !strings.Contains(out, reason):
		return fmt.Errorf("the output does not contain %q: %s", reason, lastLines(out))
	}
	return nil
}
