//go:build torture

// Package inject runs a program and intercepts its system calls. It sees each call of all threads and children before the kernel executes
// it. It can kill the program, and fail, shorten or redirect the call. It supports only x86-64.
package inject

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Action is the fate of a system call. The zero value lets it through.
type Action struct {
	Kill bool          // the program dies before the call, as in a power cut
	Torn bool          // a write writes half of its bytes, then the program dies
	Fail syscall.Errno // the call is not executed and returns this error
	Hang bool          // the call never returns
	Path string        // replaces the path that the call names; it must not be longer
}

// Run is one run of a program.
type Run struct {
	Args   []string
	Env    []string
	Dir    string
	Output *os.File // standard output and standard error
	Limit  time.Duration
	Clone  uintptr           // new namespaces, as in SysProcAttr
	Decide func(Call) Action // called for every system call, in the kernel's order
	Memory int64             // peak memory of the program in bytes; set by Start
}

// ErrHung is returned if the program was killed at the limit.
var ErrHung = errors.New("the program did not end")

// Start runs the program to its end, and returns its exit status, or -1 if a signal ended it.
func (r *Run) Start() (status int, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		// The thread is never unlocked: it ends with the goroutine, and PTRACE_O_EXITKILL kills all processes left.
		runtime.LockOSThread()
		status, err = r.trace()
	}()
	<-done
	return status, err
}

func (r *Run) trace() (int, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	pid, err := syscall.ForkExec(r.Args[0], r.Args, &syscall.ProcAttr{
		Dir: r.Dir, Env: r.Env, Files: []uintptr{null.Fd(), r.Output.Fd(), r.Output.Fd()},
		Sys: &syscall.SysProcAttr{Ptrace: true, Setpgid: true, Cloneflags: r.Clone},
	})
	if err != nil {
		return 0, fmt.Errorf("starting %s: %w", r.Args[0], err)
	}
	t := tracer{Run: r, root: pid, exit: map[int]Action{}, hang: map[int]bool{}, known: map[int]bool{pid: true}}
	hung := make(chan struct{})
	timer := time.AfterFunc(r.Limit, func() { close(hung); _ = syscall.Kill(pid, syscall.SIGKILL) })
	defer timer.Stop()
	status, err := t.handleStops()
	select {
	case <-hung:
		return status, fmt.Errorf("%w within %s", ErrHung, r.Limit)
	default:
		return status, err
	}
}

type tracer struct {
	*Run
	root  int
	exit  map[int]Action // by thread: the action at the end of its current call
	hang  map[int]bool   // threads in a call that never returns
	known map[int]bool   // threads whose first stop was handled
	armed bool
}

const options = unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEFORK | unix.PTRACE_O_TRACEVFORK |
	unix.PTRACE_O_TRACEEXEC | unix.PTRACE_O_EXITKILL

// handleStops handles every stop until the program itself has ended.
func (t *tracer) handleStops() (int, error) {
	for {
		var ws syscall.WaitStatus
		var used syscall.Rusage
		// Wait only for its process group: other goroutines may have started children on this thread.
		tid, err := syscall.Wait4(-t.root, &ws, unix.WALL|unix.WNOTHREAD, &used)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			return 0, fmt.Errorf("waiting: %w", err)
		case ws.Exited() || ws.Signaled():
			if tid == t.root {
				t.Memory = used.Maxrss << 10
				if ws.Exited() {
					return ws.ExitStatus(), nil
				}
				return -1, nil
			}
			continue
		}
		signal := t.handleStop(tid, ws)
		if t.hang[tid] {
			continue
		}
		// ESRCH means that the thread was killed; Wait4 reports its end as well.
		if err := syscall.PtraceSyscall(tid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return 0, fmt.Errorf("resuming the thread: %w", err)
		}
	}
}

// handleStop handles one stop and returns the signal to deliver.
func (t *tracer) handleStop(tid int, ws syscall.WaitStatus) int {
	switch s := ws.StopSignal(); {
	case !t.armed:
		t.armed = true // the first stop is after the program's own exec
		_ = syscall.PtraceSetOptions(tid, options)
	case s == syscall.SIGTRAP|0x80:
		t.handleCall(tid)
	case s == syscall.SIGTRAP && ws>>16 != 0: // a new thread, a new child, an exec
	case s == syscall.SIGSTOP && !t.known[tid]:
		t.known[tid] = true // a new thread begins with it
	default:
		return int(s)
	}
	return 0
}

// syscallInfo is struct ptrace_syscall_info of linux/ptrace.h.
type syscallInfo struct {
	Op     uint8
	_      [3]uint8
	_      uint32
	_, _   uint64
	Number uint64
	Args   [6]uint64
	_      [2]uint64
}

const opEntry, opExit = 1, 2

// handleCall handles the beginning or the end of a system call.
func (t *tracer) handleCall(tid int) {
	var info syscallInfo
	if _, _, e := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_GET_SYSCALL_INFO, uintptr(tid), unsafe.Sizeof(info),
		uintptr(unsafe.Pointer(&info)), 0, 0); e != 0 {
		return
	}
	do, changed := t.exit[tid]
	delete(t.exit, tid)
	switch {
	case info.Op == opEntry:
		c := Call{Number: info.Number, Root: t.root, tid: tid, args: info.Args}
		if do := t.Decide(c); do != (Action{}) {
			t.exit[tid] = do
			t.applyAction(c, do)
		}
	case info.Op != opExit || !changed:
	case do.Torn:
		_ = syscall.Kill(t.root, syscall.SIGKILL)
	case do.Fail != 0:
		setRegs(tid, func(regs *syscall.PtraceRegs) { regs.Rax = uint64(-int64(do.Fail)) })
	}
}

func (t *tracer) applyAction(c Call, do Action) {
	switch {
	case do.Kill:
		_ = syscall.Kill(t.root, syscall.SIGKILL)
	case do.Hang:
		t.hang[c.tid] = true
	case do.Torn:
		setRegs(c.tid, func(regs *syscall.PtraceRegs) { regs.Rdx /= 2 })
	case do.Fail != 0:
		setRegs(c.tid, func(regs *syscall.PtraceRegs) { regs.Orig_rax = ^uint64(0) })
	case do.Path != "":
		c.setPath(do.Path)
	}
}

func setRegs(tid int, change func(*syscall.PtraceRegs)) {
	var regs syscall.PtraceRegs
	if syscall.PtraceGetRegs(tid, &regs) == nil {
		change(&regs)
		_ = syscall.PtraceSetRegs(tid, &regs)
	}
}
