package qemu

import (
	"os/exec"
	"runtime"
	"syscall"
)

// Process is a started command.
type Process struct {
	cmd   *exec.Cmd
	ended chan struct{}
	err   error // Wait's answer; may be read once ended is closed
}

// Start starts a command whose SysProcAttr.Pdeathsig is meant. Where enter is given, it runs first, on the thread that
// forks: the namespaces that it joins are the child's, and no other thread's.
//
// The kernel sends the parent-death signal when the *thread* that forked ends, and Go ends threads as it likes. So the
// forking goroutine keeps its thread until the child is gone; the thread ends with it.
func Start(cmd *exec.Cmd, enter func() error) (*Process, error) {
	p := &Process{cmd: cmd, ended: make(chan struct{})}
	started := make(chan error, 1)
	go OnSpareThread(func() {
		if enter != nil {
			if err := enter(); err != nil {
				started <- err
				return
			}
		}
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.ended)
		}
	})
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// Ended is closed when the process is gone.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Wait returns what became of the process, once it is gone.
func (p *Process) Wait() error {
	<-p.ended
	return p.err
}

// PID is the process's number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends a signal. An error means that the process is gone.
func (p *Process) Signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// Run is cmd.Run with Start's guarantee.
func Run(cmd *exec.Cmd) error {
	p, err := Start(cmd, nil)
	if err != nil {
		return err
	}
	return p.Wait()
}

// OnSpareThread runs f on a thread that ends with it. It is never the main thread of the process: that one cannot end,
// and /proc/self shows its namespaces.
func OnSpareThread(f func()) {
	runtime.LockOSThread()
	if syscall.Gettid() != syscall.Getpid() {
		f()
		return // still locked: the runtime ends the thread
	}
	done := make(chan struct{})
	go func() { // while this goroutine waits, the main thread stays locked to it
		runtime.LockOSThread()
		defer close(done)
		f()
	}()
	<-done
	runtime.UnlockOSThread()
}
