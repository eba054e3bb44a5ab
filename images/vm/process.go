package vm

import (
	"os/exec"
	"runtime"
)

// start starts a command whose SysProcAttr.Pdeathsig is meant, and returns a channel that gets Wait's answer.
//
// The kernel sends the parent-death signal when the *thread* that forked ends, and Go ends threads as it likes. So the
// forking goroutine keeps its thread until the child is gone.
func start(cmd *exec.Cmd) (<-chan error, error) {
	started, ended := make(chan error, 1), make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		ended <- cmd.Wait()
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return ended, nil
}

// startAndWait is cmd.Run with start's guarantee.
func startAndWait(cmd *exec.Cmd) error {
	ended, err := start(cmd)
	if err != nil {
		return err
	}
	return <-ended
}
