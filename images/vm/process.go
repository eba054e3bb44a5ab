package vm

import (
	"os/exec"
	"runtime"
)

// process is a started command. err is Wait's answer and may be read once ended is closed.
type process struct {
	ended chan struct{}
	err   error
}

// start starts a command whose SysProcAttr.Pdeathsig is meant.
//
// The kernel sends the parent-death signal when the *thread* that forked ends, and Go ends threads as it likes. So the
// forking goroutine keeps its thread until the child is gone.
func start(cmd *exec.Cmd) (*process, error) {
	p := &process{ended: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.ended)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// startAndWait is cmd.Run with start's guarantee.
func startAndWait(cmd *exec.Cmd) error {
	p, err := start(cmd)
	if err != nil {
		return err
	}
	<-p.ended
	return p.err
}
