package netns

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/wire"
)

// Namespace is a network namespace and the one operating system thread that is in it. The thread
// never returns to Go's pool: Close ends it. A namespace that New created ends with its thread,
// unless a link or a socket keeps it alive. It has no file name, so kill -9 leaves nothing behind.
type Namespace struct {
	calls  chan func()
	closed chan struct{}
	once   sync.Once
	file   *os.File // the namespace, for setns and netlink
}

// New creates a namespace and sets its loopback link up. It needs CAP_SYS_ADMIN in the caller's
// user namespace; otherwise the error wraps fs.ErrPermission and names the capability.
func New(ctx context.Context) (*Namespace, error) {
	return start(ctx, func() error {
		switch err := unix.Unshare(unix.CLONE_NEWNET); {
		case errors.Is(err, unix.EPERM):
			return fmt.Errorf("creating a network namespace needs CAP_SYS_ADMIN: %w", err)
		case errors.Is(err, unix.ENOSPC):
			return fmt.Errorf("creating a network namespace: the limit user.max_net_namespaces is reached: %w", err)
		case err != nil:
			return fmt.Errorf("creating a network namespace: %w", err)
		}
		return setUp("lo")
	})
}

// Current returns the process's namespace, on a separate thread.
func Current(ctx context.Context) (*Namespace, error) {
	return start(ctx, func() error { return nil })
}

// Open returns the namespace of a file such as /run/netns/NAME or /proc/PID/ns/net. It needs CAP_SYS_ADMIN.
func Open(ctx context.Context, path string) (*Namespace, error) {
	return start(ctx, func() error {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("entering the network namespace %s: %w", path, err)
		}
		return nil
	})
}

// FD returns the descriptor of the namespace's file, for netlink.
func (n *Namespace) FD() int { return int(n.file.Fd()) }

// Same reports whether two namespaces are the same one.
func (n *Namespace) Same(other *Namespace) (bool, error) {
	mine, err := n.file.Stat()
	if err != nil {
		return false, err
	}
	others, err := other.file.Stat()
	if err != nil {
		return false, err
	}
	return os.SameFile(mine, others), nil
}

func start(ctx context.Context, enter func() error) (*Namespace, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	n := &Namespace{calls: make(chan func()), closed: make(chan struct{})}
	started := make(chan error)
	go OnSpareThread(func() {
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

// OnSpareThread runs f on a thread that ends with f. This is never the main thread of the process,
// because that one cannot end, and /proc/self shows its namespaces.
func OnSpareThread(f func()) {
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

// Do runs f on the thread that is in the namespace: sockets that f opens and programs that it
// starts are inside, and /proc/sys/net is the namespace's. It waits for f, which must end by
// itself; calls run one at a time. If ctx has ended, f does not run.
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

// Netlink runs f in the namespace, with a socket of a netlink protocol.
func (n *Namespace) Netlink(ctx context.Context, protocol int, f func(*wire.Conn) error) error {
	return n.Do(ctx, func() error { return wire.With(protocol, f) })
}

// Close ends the thread. It may be called more than once.
func (n *Namespace) Close() {
	n.once.Do(func() {
		close(n.closed)
		n.file.Close()
	})
}

// Sysctl reads a key in the namespace, in the form net/ipv4/ip_forward. The error is fs.ErrNotExist
// if the key does not exist.
func (n *Namespace) Sysctl(ctx context.Context, key string) (string, error) {
	var value string
	err := n.Do(ctx, func() error {
		b, err := os.ReadFile("/proc/sys/" + key)
		value = strings.TrimSpace(string(b))
		return err
	})
	return value, err
}

// SetSysctl writes a key in the namespace, in the form net/ipv4/ip_forward.
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

// KernelAddress parses an address as in /proc/net/tcp: "0100007F:2811", 32-bit words in
// little-endian order.
func KernelAddress(s string) (netip.AddrPort, bool) {
	address, port, _ := strings.Cut(s, ":")
	b, err := hex.DecodeString(address)
	n, err2 := strconv.ParseUint(port, 16, 16)
	if err != nil || err2 != nil || len(b)%4 != 0 {
		return netip.AddrPort{}, false
	}
	for i := 0; i < len(b); i += 4 {
		slices.Reverse(b[i : i+4])
	}
	ip, ok := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(ip.Unmap(), uint16(n)), ok
}
