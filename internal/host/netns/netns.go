package netns

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Namespace is a network namespace and the one operating system thread that is in
// it. The thread never goes back to Go's pool: it ends with Close. A namespace that
// New made ends with its thread, unless a link or a socket keeps it. No file names
// it, so that kill -9 leaves nothing.
type Namespace struct {
	calls  chan func()
	closed chan struct{}
	once   sync.Once
	file   *os.File // the namespace, for setns and netlink
}

// New makes a namespace with its loopback up. It needs CAP_SYS_ADMIN in the caller's
// user namespace; otherwise the error wraps fs.ErrPermission and names it.
func New(ctx context.Context) (*Namespace, error) {
	return start(ctx, func() error {
		switch err := unix.Unshare(unix.CLONE_NEWNET); {
		case errors.Is(err, unix.EPERM):
			return fmt.Errorf("making a network namespace needs CAP_SYS_ADMIN: %w", err)
		case errors.Is(err, unix.ENOSPC):
			return fmt.Errorf("making a network namespace: user.max_net_namespaces is reached: %w", err)
		case err != nil:
			return fmt.Errorf("making a network namespace: %w", err)
		}
		return setUp("lo")
	})
}

// Current returns the namespace of the process, on a thread of its own.
func Current(ctx context.Context) (*Namespace, error) {
	return start(ctx, func() error { return nil })
}

func start(ctx context.Context, enter func() error) (*Namespace, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	n := &Namespace{calls: make(chan func()), closed: make(chan struct{})}
	started := make(chan error)
	go onSpareThread(func() {
		err := enter()
		if err == nil {
			n.file, err = os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
		}
		started <- err
		if err == nil {
			n.serve()
		}
	})
	if err := <-started; err != nil {
		return nil, err
	}
	return n, nil
}

// onSpareThread runs f on a thread that ends with it. It is never the main thread of
// the process: that one cannot end, and /proc/self shows its namespaces.
func onSpareThread(f func()) {
	runtime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		f()
		return // still locked: the runtime ends the thread
	}
	// While this goroutine waits, the main thread stays locked to it.
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		close(done)
		f()
	}()
	<-done
	runtime.UnlockOSThread()
}

func (n *Namespace) serve() {
	for {
		select {
		case f := <-n.calls:
			f()
		case <-n.closed:
			return
		}
	}
}

// Do runs f on the thread that is in the namespace: sockets that f opens and
// programs that it starts are inside, and /proc/sys/net is the namespace's. It waits
// for f, which must end by itself; one call at a time. If ctx is done already, f
// does not run.
func (n *Namespace) Do(ctx context.Context, f func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	result := make(chan error, 1)
	select {
	case n.calls <- func() { result <- f() }:
		return <-result
	case <-n.closed:
		return os.ErrClosed
	}
}

// Close ends the thread. It may be called again.
func (n *Namespace) Close() {
	n.once.Do(func() {
		close(n.closed)
		n.file.Close()
	})
}

// Sysctl reads a key of the namespace, in the form net/ipv4/ip_forward. An absent
// key is fs.ErrNotExist.
func (n *Namespace) Sysctl(ctx context.Context, key string) (string, error) {
	var value string
	err := n.Do(ctx, func() error {
		b, err := os.ReadFile("/proc/sys/" + key)
		value = strings.TrimSpace(string(b))
		return err
	})
	return value, err
}

// SetSysctl writes a key of the namespace, in the form net/ipv4/ip_forward.
func (n *Namespace) SetSysctl(ctx context.Context, key, value string) error {
	err := n.Do(ctx, func() error {
		f, err := os.OpenFile("/proc/sys/"+key, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = f.WriteString(value)
		return err
	})
	if at, is := errors.AsType[*fs.PathError](err); is {
		err = at.Err
	}
	if err != nil {
		return fmt.Errorf("setting %s=%s: %w", strings.ReplaceAll(key, "/", "."), value, err)
	}
	return nil
}
