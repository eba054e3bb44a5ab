package cage

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/file"
)

// keep is chown, dac_override, dac_read_search, fowner, fsetid, kill, setgid, setuid, setpcap, net_bind_service, net_admin, net_raw
// and sys_chroot.
const keep = 0x435ff

// restrict gives up the thread's rights, except for keep and the system calls that reach no further than the cage's namespaces.
func restrict() error {
	for c := range uintptr(64) {
		if keep>>c&1 == 0 {
			if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil && err != unix.EINVAL { // this kernel's last
				return err
			}
		}
	}
	header, data := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, [2]unix.CapUserData{{Effective: keep, Permitted: keep}}
	if err := unix.Capset(&header, &data[0]); err != nil {
		return err
	}
	// 1: the kernel starts no program of the machine for a core.
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 1, Max: 1}); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	program := filter(map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}[runtime.GOARCH])
	list := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&list)), 0, 0)
}

// filter refuses system calls of other architectures, and those that reach what no namespace divides.
func filter(arch uint32) []unix.SockFilter {
	const number, architecture, x32, refuse = 0, 4, 1 << 30, unix.SECCOMP_RET_ERRNO
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	argument := func(n uint32) unix.SockFilter { return load(16 + 8*n) } // its lower half
	answer := func(k uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET, K: k} }
	jump := func(test uint16, k uint32, yes, no int) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | test, K: k, Jt: uint8(yes), Jf: uint8(no)}
	}
	allow, eperm := answer(unix.SECCOMP_RET_ALLOW), answer(refuse|uint32(unix.EPERM))
	f := []unix.SockFilter{load(architecture), jump(unix.BPF_JEQ, arch, 1, 0), eperm, load(number), jump(unix.BPF_JSET, x32, 0, 1), eperm}
	when := func(call uint32, then ...unix.SockFilter) {
		f = append(append(f, jump(unix.BPF_JEQ, call, 0, len(then))), then...)
	}
	for _, call := range []uint32{unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL, unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN,
		unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD,
		unix.SYS_USERFAULTFD, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER, unix.SYS_OPEN_BY_HANDLE_AT,
		unix.SYS_SYSLOG} {
		when(call, eperm)
	}
	when(unix.SYS_CLONE3, answer(refuse|uint32(unix.ENOSYS)))         // its flags are in memory; C libraries then take clone
	for _, call := range []uint32{unix.SYS_CLONE, unix.SYS_UNSHARE} { // a user namespace would bring all capabilities back
		when(call, argument(0), jump(unix.BPF_JSET, unix.CLONE_NEWUSER, 0, 1), eperm, allow)
	}
	families := []unix.SockFilter{argument(0)}
	for _, family := range []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK, unix.AF_PACKET, unix.AF_KEY} {
		families = append(families, jump(unix.BPF_JEQ, family, 0, 1), allow)
	}
	families = append(families, answer(refuse|uint32(unix.EAFNOSUPPORT)))
	when(unix.SYS_SOCKET, families...)
	when(unix.SYS_SOCKETPAIR, families...)
	when(unix.SYS_SETRLIMIT, argument(0), jump(unix.BPF_JEQ, unix.RLIMIT_CORE, 0, 1), eperm, allow)
	when(unix.SYS_PRLIMIT64, argument(1), jump(unix.BPF_JEQ, unix.RLIMIT_CORE, 1, 0), allow, // both halves of the new limit's address
		argument(2), jump(unix.BPF_JEQ, 0, 0, 2), load(16+8*2+4), jump(unix.BPF_JEQ, 0, 1, 0), eperm, allow)
	return append(f, allow)
}

// start is the cage's init. It runs the command, reports its end, and stays for the processes that it leaves running.
func start(args []string) int {
	unix.CloseOnExec(messageFD)
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) // no process of the cage looks into it
	signal.Notify(make(chan os.Signal, 1))           // or one would end it
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = os.Stdout, os.Stderr, &unix.SysProcAttr{Setsid: true}
	if stdin, err := os.Open(private + "/stdin"); err == nil {
		cmd.Stdin = stdin
	}
	ended := told{Exit: 127}
	err := cmd.Start()
	if err != nil {
		fmt.Fprintln(os.Stderr, "nodegate:", err)
		tell(ended)
	}
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		if err == unix.ECHILD {
			_ = unix.Pause()
		}
		if err == nil && cmd.Process != nil && pid == cmd.Process.Pid {
			if ended.Exit = status.ExitStatus(); status.Signaled() {
				ended.Exit = 128 + int(status.Signal())
			}
			ended.Left = running()
			tell(ended)
		}
	}
}

// running returns how many processes of the cage run beside its init.
func running() (n int) {
	names, _ := file.ListDir("/proc")
	for _, name := range names {
		text, err := os.ReadFile("/proc/" + name + "/stat")
		if err == nil && name != "1" && strings.Trim(name, "0123456789") == "" && !strings.Contains(string(text), ") Z ") {
			n++
		}
	}
	return n
}
