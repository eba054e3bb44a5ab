//go:build torture

package torture

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"nodegate/internal/e2e/torture/inject"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

// ward runs gates in separate namespaces, with a copy of this machine's /etc and a policy that can never
// pass. So a gate that lets the unit start is wrong.
type ward struct {
	t         *testing.T
	dir       string // working directory: replacements of files and programs have names of one letter
	nodegate  string
	runs      atomic.Int64
	mu        sync.Mutex
	maxMemory int64 // peak memory of all runs
}

// fixtures are the replacements of a file, by name.
var fixtures = map[string]string{"f": "a named pipe", "d": "a directory", "z": "a device", "h": "a file of 300 GB"}

// programs are the replacements of a program, by name.
var programs = map[string]struct{ what, text string }{
	"H": {"hangs", "trap : TERM INT HUP; while :; do sleep 1; done"},
	"D": {"dies", "kill -SEGV $$"},
	"E": {"fails silently", "exit 1"},
	"O": {"floods standard output", "exec yes"},
	"R": {"floods standard error", "exec yes >&2"},
	"B": {"leaves a child that holds its output", "sleep 60 & exit 0"},
}

// problemNames returns all names of check blocks, from the golden file of the command's contract test.
func problemNames(t *testing.T) []string {
	text := require.ReadFile(t, "../../../cmd/nodegate/testdata/contract.golden")
	var names []string
	for line := range strings.Lines(string(text)) {
		if name, is := strings.CutPrefix(line, "problem "); is {
			names = append(names, strings.TrimSpace(name))
		}
	}
	return names
}

func newWard(t *testing.T) *ward {
	hosttest.NeedRoot(t)
	w := &ward{t: t, dir: scratchDir(t), nodegate: nodegate(t)}
	require.NoError(t, runCommand("cp", "-a", "/etc", w.dir+"/etc"))
	var kernel unix.Utsname
	require.NoError(t, unix.Uname(&kernel))
	require.NoError(t, os.MkdirAll("/lib/modules", 0o755))
	writeFile(t, w.dir+"/modules/"+unix.ByteSliceToString(kernel.Release[:])+"/modules.dep", "kernel/nodegate_no_such.ko:\n")
	policy := "module \"nodegate_no_such\" {}\nsysctl \"net.ipv4.ip_forward\" { value = 1 }\n" +
		"link \"all\" {\n  mtu = 65535\n  match { name = \"*\" }\n}\n" +
		"gate {\n  budget = \"4s\"\n  interval = \"5s\"\n}\n"
	for _, name := range problemNames(t) {
		policy += fmt.Sprintf("check %q {}\n", name)
	}
	require.NoError(t, os.RemoveAll(w.dir+"/etc/nodegate"))
	writeFile(t, w.dir+"/etc/nodegate/policy.d/a.hcl", policy)
	require.NoError(t, unix.Mkfifo(w.dir+"/f", 0o600))
	require.NoError(t, os.Mkdir(w.dir+"/d", 0o755))
	require.NoError(t, unix.Mknod(w.dir+"/z", unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5))))
	require.NoError(t, unix.Mknod(w.dir+"/F", unix.S_IFCHR|0o600, int(unix.Mkdev(1, 7)))) // /dev/full
	writeFile(t, w.dir+"/h", "")
	require.NoError(t, os.Truncate(w.dir+"/h", 300<<30))
	for name, p := range programs {
		writeFile(t, w.dir+"/"+name, "#!/bin/sh\n"+p.text+"\n")
		require.NoError(t, os.Chmod(w.dir+"/"+name, 0o755))
	}
	return w
}

const enterWard = `mount --make-rprivate / && mount --bind "$1/etc" /etc && mount --bind "$2" /run && mount -t tmpfs tmpfs /var/lib &&
mount --bind "$1/modules" /lib/modules && ip link set lo up &&
if [ "$3" = true ]; then export JOURNAL_STREAM="$(stat -L -c %d:%i /proc/$$/fd/2)"; fi && shift 3 && exec "$@"`

// subject is the command under attack: the gate, or a check of all stages, which runs more programs.
type subject []string

var (
	gate  = subject{"gate"}
	check = subject{"check", "--stage", "all", "--timeout", "20s"}
)

// run runs a subject with its own /run, which prepare sets up. decide sees all system calls of the subject.
func (w *ward) run(sub subject, prepare func(run string), journal bool, decide func(inject.Call) inject.Action) (out string,
	status int, err error) {
	dir := fmt.Sprintf("%s/run%d", w.dir, w.runs.Add(1))
	require.NoError(w.t, os.MkdirAll(dir+"/systemd/journal", 0o755))
	defer os.RemoveAll(dir)
	if prepare != nil {
		prepare(dir)
	}
	begun := false
	r := inject.Run{Args: []string{"/bin/sh", "-c", enterWard, "sh", w.dir, dir, strconv.FormatBool(journal)}, Dir: w.dir,
		Clone: unix.CLONE_NEWNS | unix.CLONE_NEWNET, Decide: func(c inject.Call) inject.Action {
			if !begun {
				begun = c.Number == unix.SYS_EXECVE && c.Path() == w.nodegate
				return inject.Action{}
			}
			return decide(c)
		}}
	r.Args = append(append(r.Args, w.nodegate), sub...)
	out, status, err = startRun(&r)
	w.mu.Lock()
	w.maxMemory = max(w.maxMemory, r.Memory)
	w.mu.Unlock()
	return out, status, err
}

// judgeRun checks the end of a run: it must have found the node broken, and reported the reason.
func (sub subject) judgeRun(out string, status int, err error) error {
	switch {
	case err != nil:
		return err
	case status == 0:
		return fmt.Errorf("the gate let the unit start: %s", lastLines(out))
	case status < 0 || strings.Contains(out, "goroutine "):
		return fmt.Errorf("nodegate crashed: %s", lastLines(out))
	case !strings.Contains(out, "held") && !strings.Contains(out, "nodegate_no_such") && !strings.Contains(out, "opening root") &&
		(sub[0] != "check" || !strings.Contains(out, "timed out after")): // at its --timeout, on a busy machine
		return fmt.Errorf("the output does not contain the reason: %s", lastLines(out))
	}
	return nil
}

// listAccesses returns the files that an unattacked run opens and inspects, and the programs that it runs.
func (w *ward) listAccesses(sub subject) (opened, looked, ran []string) {
	add := func(list *[]string, p string) {
		// The Go runtime reads these files before the program begins, and a pipe would block it.
		runtimes := strings.HasPrefix(p, "/sys/kernel/mm/") || strings.HasPrefix(p, "/sys/fs/cgroup/") || strings.HasPrefix(p, "/proc/self/")
		if p != "" && !slices.Contains(*list, p) && !runtimes && p != "/dev/console" {
			*list = append(*list, p)
		}
	}
	out, status, err := w.run(sub, nil, false, func(c inject.Call) inject.Action {
		switch {
		case c.Own() && c.Opens():
			add(&opened, c.Path())
		case c.Own() && (c.Number == unix.SYS_NEWFSTATAT || c.Number == unix.SYS_STATX || c.Number == unix.SYS_OPENAT && !c.Writes()):
			add(&looked, c.Path())
		case !c.Own() && c.Number == unix.SYS_EXECVE:
			add(&ran, c.Path())
		}
		return inject.Action{}
	})
	if err := sub.judgeRun(out, status, err); err != nil || !strings.Contains(out, "module.nodegate_no_such") {
		w.t.Fatalf("without an attack: %v\n%s", err, out)
	}
	w.t.Logf("%s opens %d files, inspects %d and runs %d programs", sub[0], len(opened), len(looked), len(ran))
	if len(opened) < 20 || len(ran) == 0 {
		w.t.Fatal("the test does not see the system calls of nodegate")
	}
	return opened, looked, ran
}

// attack applies do to the matching calls of a run, and judges the result.
func (w *ward) attack(sub subject, matches func(inject.Call) bool, do inject.Action) error {
	reached := false
	out, status, err := w.run(sub, nil, false, func(c inject.Call) inject.Action {
		if matches(c) {
			reached = true
			return do
		}
		return inject.Action{}
	})
	if err == nil && !reached {
		return errNotReached
	}
	return sub.judgeRun(out, status, err)
}

var errNotReached = fmt.Errorf("the run did not make this call")
