//go:build torture

package torture

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"nodegate/internal/e2e/torture/inject"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

// lab is a set of namespaces with a link, parameters, /run and a policy of their own. Several runs of nodegate share it.
type lab struct {
	holder *exec.Cmd
	enter  []string
}

const labPolicy = `sysctl "net.ipv4.ip_forward" { value = 1 }
sysctl "net.ipv4.conf.all.rp_filter" { value = 2 }
sysctl "net.core.somaxconn" { value = 2048 }
sysctl "net.ipv4.tcp_keepalive_time" { value = 600 }
link "pods" {
  mtu = 1400
  match { name = "pods0" }
}
`

const enterLab = `set -e
mount --make-rprivate /
for dir in /run /var/lib; do mount -t tmpfs -o mode=755 tmpfs $dir; done
ip link add pods0 mtu 1450 type veth peer name pods1
echo 0 >/proc/sys/net/ipv4/ip_forward
echo ready
exec sleep 600`

// labState prints the settings that the policy changes.
const labState = `cd /proc/sys/net; cat ipv4/ip_forward ipv4/conf/all/rp_filter core/somaxconn ipv4/tcp_keepalive_time
ip -o link show pods0 | cut -d' ' -f4,5`

func newLab() (*lab, error) {
	l := &lab{holder: exec.Command("unshare", "--net", "--mount", "sh", "-c", enterLab)}
	l.holder.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	out, err := l.holder.StdoutPipe()
	if err == nil {
		err = l.holder.Start()
	}
	if err != nil {
		return nil, err
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return nil, errors.Join(fmt.Errorf("the namespaces are not ready: %q %w", line, err), l.end())
	}
	l.enter = []string{"/usr/bin/nsenter", "--net", "--mount", "--target", fmt.Sprint(l.holder.Process.Pid)}
	return l, nil
}

func (l *lab) end() error {
	err := l.holder.Process.Kill()
	_ = l.holder.Wait()
	return err
}

// run runs a program in the lab, which must succeed.
func (l *lab) run(args ...string) (string, error) {
	out, err := exec.Command(l.enter[0], append(l.enter[1:], args...)...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, lastLines(string(out)))
	}
	return string(out), err
}

// TestRevert attacks the writing system calls of apply and of revert. A revert afterwards restores every setting.
func TestRevert(t *testing.T) {
	t.Parallel()
	hosttest.NeedRoot(t)
	runtime.LockOSThread() // Pdeathsig refers to the thread that starts the lab, and other tests end threads
	defer runtime.UnlockOSThread()
	dir := scratchDir(t)
	program := nodegate(t)
	writeFile(t, dir+"/a.hcl", labPolicy)
	apply := []string{program, "apply", "--policy", dir + "/a.hcl"}
	for _, verb := range []string{"apply", "revert"} {
		attackPoints(t, verb, 3, func(decide func(inject.Call) inject.Action) error {
			l, err := newLab()
			if err != nil {
				return err
			}
			defer func() { _ = l.end() }()
			before, err := l.run("sh", "-c", labState)
			if err != nil {
				return err
			}
			attacked := apply
			if verb == "revert" {
				applied, err := l.run(apply...)
				if now, _ := l.run("sh", "-c", labState); err != nil || now == before {
					return fmt.Errorf("nothing was applied: %w: %s", err, lastLines(applied))
				}
				attacked = []string{program, verb}
			}
			begun, unrecorded := false, false
			out, _, err := runProgram(dir, append(slices.Clone(l.enter), attacked...), func(c inject.Call) inject.Action {
				p := c.Path()
				begun = begun || c.Number == unix.SYS_EXECVE && p == program
				if begun && c.Own() && (strings.HasPrefix(p, "/proc/sys/net/") || strings.HasPrefix(p, "/run/nodegate")) {
					do := decide(c)
					unrecorded = unrecorded || do.Fail != 0 && strings.HasPrefix(p, "/run/")
					return do
				}
				return inject.Action{}
			})
			if err != nil || strings.Contains(out, "goroutine ") {
				return fmt.Errorf("%w: %s", err, lastLines(out))
			}
			if verb == "apply" && unrecorded { // revert may not know of the change, which is made even so: SECURITY.md
				now, err := l.run("sh", "-c", labState)
				if err == nil && now != "1\n2\n2048\n600\nmtu 1400\n" {
					err = fmt.Errorf("apply made nothing of a full /run: %q", now)
				}
				return err
			}
			undone, err := l.run(program, "revert")
			if err != nil {
				return err
			}
			after, err := l.run("sh", "-c", labState)
			if err == nil && after != before {
				err = fmt.Errorf("the settings were %q and are %q; the last revert printed %q", before, after, undone)
			}
			return err
		})
	}
}

// attackPoints counts the writing calls of a run, and attacks samples of them in further runs. The run passes its calls to decide.
func attackPoints(t *testing.T, what string, samples int, run func(decide func(inject.Call) inject.Action) error) {
	var calls []inject.Call
	var torn []bool
	require.NoError(t, run(func(c inject.Call) inject.Action {
		if c.Writes() {
			calls = append(calls, c)
			torn = append(torn, c.IsWrite() && !strings.HasPrefix(c.Path(), "/proc/")) // the kernel takes a parameter whole
		}
		return inject.Action{}
	}))
	require.True(t, len(calls) >= 5, "%s makes only %d writing calls: the test does not see all of them", what, len(calls))
	for _, attack := range []struct {
		name string
		do   inject.Action
	}{
		{"killed", inject.Action{Kill: true}}, {"killed in the middle of a write", inject.Action{Torn: true}},
		{"ENOSPC", inject.Action{Fail: unix.ENOSPC}}, {"EIO", inject.Action{Fail: unix.EIO}},
	} {
		var points []int
		for point := range calls {
			if !attack.do.Torn || torn[point] {
				points = append(points, point)
			}
		}
		if len(points) == 0 {
			continue // revert writes an empty file if it leaves nothing
		}
		var s survey
		forEachPoint(samplePoints(t, len(points), samples), 2, func(chosen int) {
			s.runPoint(t, fmt.Sprintf("%s, %s at writing call %d", what, attack.name, points[chosen]), func() error {
				seen := 0
				err := run(func(c inject.Call) inject.Action {
					if c.Writes() {
						seen++
					}
					if c.Writes() && seen == points[chosen]+1 {
						return attack.do
					}
					return inject.Action{}
				})
				if err == nil && seen <= points[chosen] {
					err = fmt.Errorf("only %d writing calls were made: the attack never happened", seen)
				}
				return err
			})
		})
		s.printCounts(t, what+": "+attack.name)
	}
}

// TestExport attacks the writing system calls of exports that replace a file. It has the old content or the new one, and the next export
// writes the new one.
func TestExport(t *testing.T) {
	t.Parallel()
	dir := scratchDir(t)
	writeFile(t, dir+"/a.hcl", labPolicy)
	var runs atomic.Int64
	for _, format := range []string{"kops", "cloud-init", "kubeadm"} {
		args := []string{nodegate(t), "export", format, "--policy", dir + "/a.hcl", "--output"}
		require.NoError(t, runCommand(append(args, dir+"/"+format)...))
		content, err := os.ReadFile(dir + "/" + format)
		require.NoError(t, err)
		attackPoints(t, "export "+format, 2, func(decide func(inject.Call) inject.Action) error {
			const old = "an older export\n"
			own := fmt.Sprintf("%s/run%d", dir, runs.Add(1))
			at := own + "/f"
			defer os.RemoveAll(own)
			if err := errors.Join(os.Mkdir(own, 0o755), os.WriteFile(at, []byte(old), 0o640)); err != nil {
				return err
			}
			out, status, err := runProgram(dir, append(args, at), func(c inject.Call) inject.Action {
				if strings.HasPrefix(c.Path(), own+"/") {
					return decide(c)
				}
				return inject.Action{}
			})
			now, readErr := os.ReadFile(at)
			if err != nil || readErr != nil {
				return errors.Join(err, readErr)
			}
			if string(now) != string(content) && (status == 0 || string(now) != old) {
				return fmt.Errorf("exit status %d, content %q: %s", status, now, lastLines(out))
			}
			if err := runCommand(append(args, at)...); err != nil {
				return err
			}
			if now, err = os.ReadFile(at); string(now) != string(content) {
				return fmt.Errorf("the next export wrote %q, %v", now, err)
			}
			files, err := os.ReadDir(own)
			for _, f := range files { // a run that was killed may leave its hidden file
				if f.Name() != "f" && (status != -1 || !strings.HasPrefix(f.Name(), ".nodegate-new-")) {
					err = errors.Join(err, fmt.Errorf("%s is left", f.Name()))
				}
			}
			return err
		})
	}
}
