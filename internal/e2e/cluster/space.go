package cluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"nodegate/internal/e2e/qemu"
)

// Space is a set of namespaces: network, processes and mounts. It has its own /proc, /sys and /run, and shares all other files with the
// host. All its processes end with it.
type Space struct {
	first      *qemu.Process
	pid        int
	namespaces []*os.File // in the order of joining
	kinds      []int
}

// firstProcess is the script of a Space's first process. It prints "ready" when the Space can be used.
const firstProcess = `
mount --make-rprivate /
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs tmpfs /run
ip link set lo up
echo ready
exec sleep infinity
`

// NewSpace creates a Space. The caller closes it.
func NewSpace() (*Space, error) {
	cmd := exec.Command("sh", "-euc", firstProcess)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Pdeathsig:  syscall.SIGKILL,
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWNS,
	}
	var complaints strings.Builder
	cmd.Stderr = &complaints
	ready, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer ready.Close()
	cmd.Stdout = theirs
	first, err := qemu.Start(cmd, nil)
	theirs.Close()
	if err != nil {
		return nil, fmt.Errorf("making namespaces: %w", err)
	}
	s := &Space{first: first, pid: cmd.Process.Pid}
	if line, err := bufio.NewReader(ready).ReadString('\n'); err != nil {
		if errors.Is(err, io.EOF) {
			err = fmt.Errorf("%w: %s", first.Wait(), complaints.String())
		}
		s.Close()
		return nil, fmt.Errorf("preparing namespaces: %q: %w", line, err)
	}
	for _, n := range []struct {
		name string
		kind int
	}{{"net", unix.CLONE_NEWNET}, {"pid", unix.CLONE_NEWPID}, {"mnt", unix.CLONE_NEWNS}} {
		f, err := os.Open(fmt.Sprintf("/proc/%d/ns/%s", s.pid, n.name))
		if err != nil {
			s.Close()
			return nil, fmt.Errorf("opening a namespace: %w", err)
		}
		s.namespaces, s.kinds = append(s.namespaces, f), append(s.kinds, n.kind)
	}
	return s, nil
}

// Enter joins the namespaces. Programs started afterwards run inside. The calling thread must end afterwards.
func (s *Space) Enter() error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil { // threads that share their root cannot change mounts
		return fmt.Errorf("entering namespaces: %w", err)
	}
	for i, f := range s.namespaces {
		if err := unix.Setns(int(f.Fd()), s.kinds[i]); err != nil {
			return fmt.Errorf("entering namespaces: %w", err)
		}
	}
	return nil
}

// EnterNetwork joins only the network namespace, like Enter. Programs started afterwards do not end with the Space.
func (s *Space) EnterNetwork() error {
	return unix.Setns(int(s.namespaces[0].Fd()), unix.CLONE_NEWNET)
}

// Connect creates a pair of links: one in this Space, attached to the bridge master, and eth0 in the other Space.
func (s *Space) Connect(other *Space, link, master string) error {
	script := `ip link add "$1" type veth peer name eth0 netns "$2"; ip link set "$1" master "$3" up`
	cmd := exec.Command("sh", "-euc", script, "sh", link, strconv.Itoa(other.pid), master)
	var complaints strings.Builder
	cmd.Stdout, cmd.Stderr = &complaints, &complaints
	p, err := qemu.Start(cmd, s.EnterNetwork)
	if err == nil {
		err = p.Wait()
	}
	if err != nil {
		return fmt.Errorf("connecting namespaces: %w\n%s", err, complaints.String())
	}
	return nil
}

// Start starts a program in the Space and appends its output to the file log.
func (s *Space) Start(log string, configure func(*exec.Cmd), name string, args ...string) (*qemu.Process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close() // the child has its own descriptor
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{} // no Pdeathsig: the Space's first process ends it; the parent is outside its namespaces
	if configure != nil {
		configure(cmd)
	}
	p, err := qemu.Start(cmd, s.Enter)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	return p, nil
}

// Output runs a program in the Space and returns its standard output. If the program fails, the error contains its standard error.
func (s *Space) Output(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var out, complaints strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &complaints
	cmd.WaitDelay = time.Second
	p, err := qemu.Start(cmd, s.Enter)
	if err == nil {
		err = p.Wait()
	}
	if err != nil {
		return out.String(), fmt.Errorf("running %s %s: %w\n%s", name, strings.Join(args, " "), err, complaints.String())
	}
	return out.String(), nil
}

// Shell runs a script with sh -euc in the Space; args are $1 and so on.
func (s *Space) Shell(ctx context.Context, script string, args ...string) error {
	out, err := s.Output(ctx, "sh", append([]string{"-euc", script, "sh"}, args...)...)
	if err != nil && out != "" {
		err = fmt.Errorf("%w%s", err, out)
	}
	return err
}

// DialContext opens a connection from inside the Space.
func (s *Space) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	type answer struct {
		conn net.Conn
		err  error
	}
	answered := make(chan answer, 1)
	go qemu.OnSpareThread(func() {
		var a answer
		if a.err = s.Enter(); a.err == nil {
			a.conn, a.err = (&net.Dialer{}).DialContext(ctx, network, address)
		}
		answered <- a
	})
	a := <-answered
	return a.conn, a.err
}

// Close ends all processes in the Space. It may be called more than once.
func (s *Space) Close() {
	_ = s.first.Signal(syscall.SIGKILL) // an error means that it has already ended
	_ = s.first.Wait()                  // it was killed, so an error is expected
	for _, f := range s.namespaces {
		f.Close()
	}
}
