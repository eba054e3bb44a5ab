package cage_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nodegate/internal/assert"
	"nodegate/internal/host/cage"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/host/netns"
	"nodegate/internal/require"
)

type question struct {
	Args   []string
	For    time.Duration
	Units  map[string]string
	Spaces uintptr // the caller's further namespaces
	Look   *cage.Outside
}

type answer struct {
	Cage  cage.Cage
	Would cage.Record
	Error string
	Node  string // its files, afterwards
}

func TestMain(m *testing.M) {
	var q question
	switch stage := append(os.Args, "")[1]; stage {
	case "cage":
		os.Exit(cage.Main(os.Args[2:]))
	case "node", "caller":
		err := json.NewDecoder(os.Stdin).Decode(&q)
		a := answer{}
		if err == nil {
			err = map[string]func(question, *answer) error{"node": node, "caller": call}[stage](q, &a)
		}
		if err != nil {
			a.Error = err.Error()
		}
		_ = json.NewEncoder(os.Stdout).Encode(a)
		os.Exit(0)
	case "connect":
		_, err := net.Dial("unix", os.Args[2])
		fmt.Println(err)
		os.Exit(map[bool]int{true: 0, false: 1}[err == nil])
	case "system-call":
		var n [6]uintptr
		for i, arg := range os.Args[2:] {
			v, _ := strconv.ParseInt(arg, 0, 64)
			n[i] = uintptr(v)
		}
		_, _, errno := unix.RawSyscall6(n[0], n[1], n[2], n[3], n[4], n[5], 0)
		if slices.Contains([]unix.Errno{unix.EPERM, unix.ENOSYS, unix.EAFNOSUPPORT}, errno) {
			os.Exit(1)
		}
		fmt.Println(errno)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// node makes a machine's directories, mounts and sockets in a mount namespace of its own, and starts the caller.
func node(q question, a *answer) (err error) {
	script := `mount --make-rprivate /; for d in /var/lib /srv; do mount -t tmpfs tmpfs $d; done; mkdir -p /srv/sub /var/lib/kubelet/pki
mount -t tmpfs tmpfs /srv/sub; mkdir /srv/proc /srv/old; mount -t proc proc /srv/proc; touch /srv/bound /srv/old/one; mount --bind /etc/passwd /srv/bound; echo file | tee /srv/file /srv/gone /srv/touched /srv/sub/file >/var/lib/kubelet/pki/key`
	if out, err := exec.Command("sh", "-ec", script).CombinedOutput(); err != nil {
		return fmt.Errorf("forbidden here: mounts: %w: %s", err, out)
	}
	listener, err := net.Listen("unix", "/srv/socket")
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }()
	if q.Look, err = cage.Look(); err != nil {
		return err
	}
	all := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1<<32 - 1}}
	text, err := again("caller", q, &syscall.SysProcAttr{UidMappings: all, GidMappings: all, GidMappingsEnableSetgroups: true, Cloneflags: q.Spaces | unix.CLONE_NEWUSER | unix.CLONE_NEWNS |
		unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWNET}, q.Look.Files)
	if err != nil {
		return fmt.Errorf("forbidden here: a user namespace (kernel.unprivileged_userns_clone, user.max_user_namespaces): %w", err)
	}
	if err := json.Unmarshal(text, a); err != nil {
		return err
	}
	text, err = exec.Command("sh", "-c", "cd /srv; grep . file gone touched sub/*; cmp bound /etc/passwd; ls . old").CombinedOutput()
	a.Node = string(text)
	return nil
}

func again(stage string, q question, attr *syscall.SysProcAttr, files []*os.File) ([]byte, error) {
	runtime.LockOSThread() // Pdeathsig refers to the thread that started the child
	defer runtime.UnlockOSThread()
	text, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("/proc/self/exe", stage)
	cmd.Stdin, cmd.Stderr, cmd.ExtraFiles, cmd.SysProcAttr, attr.Pdeathsig = bytes.NewReader(text), os.Stderr, files, attr, unix.SIGKILL
	return cmd.Output()
}

// call runs the command, as cage.Run's caller does.
func call(q question, a *answer) error {
	if q.Spaces != 0 {
		if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil { // of the new PID namespace
			return err
		}
	}
	for i, name := range q.Look.Trees {
		q.Look.Files = append(q.Look.Files, os.NewFile(uintptr(3+i), name))
	}
	n, err := netns.New(context.Background())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), q.For)
	defer cancel()
	c, err := cage.Run(ctx, cage.Spec{Args: q.Args, Network: n.FD(), Units: q.Units,
		Self: []string{"/proc/self/exe", "cage"}, Outside: q.Look})
	if err != nil {
		return err
	}
	defer c.Close()
	a.Cage, a.Would = *c, c.Would()
	return nil
}

func run(t *testing.T, q question) answer {
	t.Helper()
	hosttest.NeedRoot(t)
	for _, name := range []string{"nsenter", "unshare", "setpriv", "sysctl", "systemctl"} {
		hosttest.NeedProgram(t, name)
	}
	q.Spaces, q.For = unix.CLONE_NEWPID, cmp.Or(q.For, time.Minute)
	text, err := again("node", q, &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}, nil)
	require.NoError(t, err)
	var a answer
	require.NoError(t, json.Unmarshal(text, &a))
	hosttest.Need(t, !strings.HasPrefix(a.Error, "forbidden here"), a.Error)
	require.True(t, a.Error == "", "%s", a.Error)
	return a
}

func sh(script string) question { return question{Args: []string{"sh", "-c", script}} }

// TestEscapes: nothing that the command tries reaches the machine. SECURITY.md: rehearsal.
func TestEscapes(t *testing.T) {
	outside := exec.Command("sleep", "1000")
	require.NoError(t, outside.Start())
	defer func() { _ = outside.Process.Kill(); _ = outside.Wait() }()
	sys := func(n ...any) string {
		return "/run/.nodegate/self system-call " + strings.Trim(fmt.Sprintf("%v", n), "[]")
	}
	var script strings.Builder
	rows := [][2]string{
		{"signal a process of the machine", fmt.Sprintf("kill -0 %d", outside.Process.Pid)},
		{"see a process of the machine", "grep -l 's[l]eep.1000' /proc/[0-9]*/cmdline"},
		{"a socket of the machine", "test -S /srv/socket && /run/.nodegate/self connect /srv/socket"},
		{"mount", "mount -t tmpfs tmpfs /mnt"},
		{"unmount", "umount -l /sys || umount -l /proc/keys || umount /var/lib/kubelet/pki"},
		{"remount", "mount -o remount,bind,rw /proc || mount -o remount,bind,rw /sys"},
		{"a device", "mknod /root/d b 259 0 && cat /root/d || mknod /dev/d c 1 1"},
		{"permissions of a device", "chmod 666 /dev/null"},
		{"permissions below /proc", "chmod 444 /proc/uptime || chmod 444 /proc/1/stat"},
		{"permissions below /sys", "chmod 755 /sys/devices/virtual/net || chmod 755 /sys/class"},
		{"namespaces of init", "nsenter -t 1 -m true || nsenter -t 1 -n true || ls /proc/1/root/ || cat /proc/1/environ || cat /proc/1/maps"},
		{"descriptors of init", "readlink /proc/1/fd/*"},
		{"init's end", "kill -9 1; kill -SEGV 1; kill -TERM 1; kill -0 1 && false"},
		{"a descriptor", "ls /proc/self/fd/ | grep -v '^[0-3]$'"},
		{"a user namespace", "unshare -U true || unshare -Ur mount -t tmpfs tmpfs /mnt"},
		{"SysRq", "echo h >/proc/sysrq-trigger"},
		{"kernel memory", "head -c1 /proc/kcore | grep . || head -c1 /dev/mem || head -c1 /proc/kmsg | grep ."},
		{"/sys of the machine", "echo 1 >/sys/kernel/mm/ksm/run || echo 0 >/sys/module/kernel/parameters/panic || mkdir /sys/fs/cgroup/x"},
		{"a secret", "cat /var/lib/kubelet/pki/key"},
		{"the layers", "ls /tmp/low || ls /tmp/up"},
		{"another root", "cat /../../tmp/up/0 || chroot /proc/1/root true"},
	}
	for _, row := range rows {
		fmt.Fprintf(&script, "{ %s; } >/dev/shm/out 2>&1 && { echo escaped: %q; cat /dev/shm/out; }\n", row[1], row[0])
	}
	for name, call := range map[string][]any{
		"vsock": {unix.SYS_SOCKET, 40, 1, 0}, "alg": {unix.SYS_SOCKET, 38, 5, 0}, "tipc": {unix.SYS_SOCKETPAIR, 30, 5, 0},
		"add_key": {unix.SYS_ADD_KEY}, "request_key": {unix.SYS_REQUEST_KEY}, "keyctl": {unix.SYS_KEYCTL, 0, -3}, "bpf": {unix.SYS_BPF, 99},
		"perf_event_open": {unix.SYS_PERF_EVENT_OPEN}, "init_module": {unix.SYS_INIT_MODULE}, "finit_module": {unix.SYS_FINIT_MODULE, -1},
		"delete_module": {unix.SYS_DELETE_MODULE}, "kexec": {unix.SYS_KEXEC_LOAD}, "userfaultfd": {unix.SYS_USERFAULTFD, 1},
		"io_uring": {unix.SYS_IO_URING_SETUP}, "handle": {unix.SYS_OPEN_BY_HANDLE_AT, -1}, "syslog": {unix.SYS_SYSLOG, 9},
		"clone3": {unix.SYS_CLONE3}, "unshare": {unix.SYS_UNSHARE, 1 << 28}, "clone": {unix.SYS_CLONE, 1<<28 | 1<<33},
		"core": {unix.SYS_PRLIMIT64, 0, unix.RLIMIT_CORE, 1 << 32}, "core 2": {unix.SYS_SETRLIMIT, unix.RLIMIT_CORE}, "x32": {1<<30 | unix.SYS_GETPID},
		"ptrace": {unix.SYS_PTRACE, unix.PTRACE_SEIZE, 1},
	} {
		fmt.Fprintf(&script, "%s >/dev/shm/out 2>&1 && { echo escaped: %q; cat /dev/shm/out; }\n", sys(call...), name)
	}
	a := run(t, sh(script.String()+`grep '^Cap[PB]\|NoNew' /proc/self/status; grep core /proc/self/limits; cat /proc/1/oom_score_adj; env | grep -v '^\(HOME\|LANG\|TERM\|PATH\|PWD\|container=nodegate-rehearse$\)'`))
	assert.Diff(t, a.Cage.Said, `CapPrm:	00000000000435ff
CapBnd:	00000000000435ff
NoNewPrivs:	1
Max core file size        1                    1                    bytes     
1000
`)
	require.NoError(t, outside.Process.Signal(syscall.Signal(0)))
}

func TestWould(t *testing.T) {
	before := require.ReadFile(t, "/proc/sys/kernel/panic")
	q := sh(`set -e; echo new >/srv/sub/new; echo longer >>/srv/file; rm /srv/gone; : >>/srv/touched; mkdir /srv/dir; echo x >>/srv/bound; rm -r /srv/old; mkdir /srv/old; echo 2 >/srv/old/two; echo x >/top; ln -s x /srv/link
sysctl -w kernel.panic=77 net.core.netdev_max_backlog=7777 net.ipv4.ip_forward=1; cat /proc/sys/kernel/panic /proc/sys/net/ipv4/ip_forward; setpriv --reuid 65534 --regid 65534 --clear-groups id -u; systemctl show -p ActiveState known; grep -q . /proc/sys/net/core/somaxconn
echo 1234 >/proc/sys/net/ipv4/neigh/default/gc_thresh3; sysctl -w kernel.pid_max=$(cat /proc/sys/kernel/pid_max)
cat >/etc/systemd/system/once@.service <<E
[Service]
Type=oneshot
Environment="A=b c" D=e
ExecStart=/bin/false
ExecStart=
ExecStart=-/bin/false
ExecStart=/bin/sh -c 'echo started %i \$D >>/srv/once'
ExecStop=/bin/sh -c 'echo stopped >>/srv/once'
E
printf '[Service]\nExecStart=/bin/sleep 9\n' >/etc/systemd/system/stays.service
systemctl start once@x; systemctl stop once@x.service; ln -s /run/.nodegate/as /srv/service; /srv/service stays restart; rm /srv/service; systemctl enable --now stays; systemctl daemon-reload
systemctl is-active known; systemctl is-active --quiet stays || echo rc $?; systemctl start none || echo rc $?; cat /srv/once; echo a >/run/x; touch /dev/shm/x`)
	q.Units = map[string]string{"known.service": "active"}
	a := run(t, q)
	assert.Equal(t, fmt.Sprint(a.Cage.Exit, a.Cage.Ended), "0 true")
	assert.Diff(t, a.Cage.Said, fmt.Sprintf(`kernel.panic = 77
net.core.netdev_max_backlog = 7777
net.ipv4.ip_forward = 1
77
1
65534
ActiveState=active
kernel.pid_max = %sactive
rc 3
Unit none.service not found.
rc 5
started x e
stopped
`, require.ReadFile(t, "/proc/sys/kernel/pid_max")))
	assert.Diff(t, fmt.Sprintf("%q\n%q\n%v\n%v", a.Would.Files, a.Would.Sysctls, a.Would.Units, a.Would.Hidden),
		`["/etc/systemd/system/once@.service" "/etc/systemd/system/stays.service" "/srv/bound" "/srv/file" "/srv/link" "/srv/old/two" "/srv/once" "/srv/sub/new" "/top" "deleted /srv/gone" "deleted /srv/old"]
["kernel.panic = 77" "net.core.netdev_max_backlog = 7777" "net.ipv4.neigh.default.gc_thresh3 = 1234"]
[{start once@x.service ran} {stop once@x.service ran} {restart stays.service not run} {enable stays.service at the next start} {start stays.service not run} {daemon-reload  at the next start} {start none.service absent}]
[/srv/proc]`)
	assert.Diff(t, a.Node, "file:file\ngone:file\ntouched:file\nsub/file:file\n.:\nbound\nfile\ngone\nold\nproc\nsocket\nsub\ntouched\n\nold:\none\n")
	assert.Equal(t, string(require.ReadFile(t, "/proc/sys/kernel/panic")), string(before))
}

func TestEnds(t *testing.T) {
	for _, c := range []struct {
		q          question
		said, want string
	}{
		{question{Args: []string{"no-such-program"}}, "nodegate: exec: \"no-such-program\": executable file not found in $PATH\n", "127 true"},
		{sh("kill -9 $$"), "", "137 true"},
		{question{Args: []string{"sh", "-c", "echo begun; sleep 1000"}, For: 2 * time.Second}, "begun\n", "0 false"},
		{sh("sleep 1000 & i=0; while [ $i -lt 5000 ]; do echo $i; i=$((i+1)); done | tee /dev/stderr; exit 3"), "4999\n", "3 true"},
	} {
		a := run(t, c.q)
		assert.Equal(t, fmt.Sprint(a.Cage.Exit, a.Cage.Ended), c.want, "%v", c.q)
		assert.True(t, strings.HasSuffix(a.Cage.Said, c.said) && len(a.Cage.Said) <= 9000, "%v: %q", c.q, a.Cage.Said)
	}
}

// TestKilled: the processes of a cage end with the process that started it, if that has no PID namespace of its own either.
func TestKilled(t *testing.T) {
	run(t, sh("true"))
	q := sh("setsid sleep 1000.25 & sleep 1000.25")
	q.For = time.Minute
	text, err := json.Marshal(q)
	require.NoError(t, err)
	cmd := exec.Command("/proc/self/exe", "node")
	cmd.Stdin, cmd.SysProcAttr = bytes.NewReader(text), &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	require.NoError(t, cmd.Start())
	running := func() (pids []string) {
		all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, name := range all {
			if text, _ := os.ReadFile(name); strings.HasPrefix(string(text), "sleep\x001000.25") {
				pids = append(pids, name)
			}
		}
		return pids
	}
	wait := func(n int) {
		for range 6000 {
			if len(running()) == n {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Fatalf("want %d, have %s", n, running())
	}
	wait(2)
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	wait(0)
}
