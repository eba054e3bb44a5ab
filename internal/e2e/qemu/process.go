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
	err   error // result of Wait; may be read once ended is closed
}

// Start starts a command whose SysProcAttr.Pdeathsig is set. If enter is not nil, it runs first, on
// the thread that forks: the child inherits the namespaces that it joins, and no other thread does.
//
// The kernel sends the parent-death signal when the *thread* that forked ends, and Go may end threads at any time. So the forking
// goroutine keeps its thread until the child has ended; the thread ends with it.
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

// Ended returns a channel that is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Wait waits for the end of the process and returns its result.
func (p *Process) Wait() error {
	<-p.ended
	return p.err
}

// PID returns the process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends a signal. An error means that the process has ended.
func (p *Process) Signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// Run is like cmd.Run, with Start's guarantee.
func Run(cmd *exec.Cmd) error {
	p, err := Start(cmd, nil)
	if err != nil {
		return err
	}
	return p.Wait()
}

// OnSpareThread runs f on a thread that ends with f. This is never the main thread of the process,
// because that one cannot end, and /proc/self shows its namespaces.
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
