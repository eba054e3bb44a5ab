// Package cage runs a command of the operator where it can change nothing of the machine, and lists what it would have changed.
package cage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/program"
)

// Spec is a command and its cage.
type Spec struct {
	Args    []string
	Network int               // descriptor of the network namespace
	Units   map[string]string // ActiveState by unit
	Self    []string          // the arguments with which this program calls Main, /proc/self/exe first
	Outside *Outside          // nil: as the caller sees the machine
}

// Cage is a command's namespaces. They end with Close or with the caller.
type Cage struct {
	Exit  int    // 127: not found; 128+n: ended by signal n
	Ended bool   // the command ended before ctx did
	Said  string // the last 9,000 bytes of its outputs

	outside *Outside
	hidden  []string
	modules map[string]bool // before the command
	root    *os.Root        // its files in memory
	files   []io.Closer
	cmd     *exec.Cmd
	done    chan struct{}
}

// told is a message of the cage's own process: when the cage stands, and when the command has ended.
type told struct {
	Hidden []string
	Error  string
	Exit   int
}

// Run runs a command in a cage and returns when it or ctx has ended. Its processes stay until Close. The caller is root of its own
// user, mount and PID namespaces.
func Run(ctx context.Context, s Spec) (_ *Cage, err error) {
	if s.Outside == nil {
		if s.Outside, err = Look(); err != nil {
			return nil, err
		}
		defer s.Outside.Close()
	}
	c := &Cage{outside: s.Outside, modules: modules(), done: make(chan struct{})}
	defer func() {
		if err != nil {
			c.Close()
		}
	}()
	stage, err := memory()
	if err != nil {
		return nil, fmt.Errorf("mounting a tmpfs for the command's files: %w", err)
	}
	c.files = append(c.files, stage)
	if c.root, err = os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", stage.Fd())); err != nil {
		return nil, err
	}
	network, err := unix.FcntlInt(uintptr(s.Network), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, err
	}
	var ends [4]*os.File // of the pipe of its outputs, and of the pipe of messages
	for i := 0; i < len(ends); i += 2 {
		if ends[i], ends[i+1], err = os.Pipe(); err != nil {
			return nil, err
		}
	}
	out, messages := ends[0], ends[2]
	c.files = append(c.files, out, messages)
	spec, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	c.cmd = exec.Command(s.Self[0], append(s.Self[1:len(s.Self):len(s.Self)], "build")...)
	c.cmd.Args[0] = os.Args[0]
	c.cmd.Env, c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = environment(), bytes.NewReader(spec), ends[1], ends[1]
	c.cmd.ExtraFiles = append([]*os.File{ends[3], stage, os.NewFile(uintptr(network), "network")}, s.Outside.Files...)
	c.cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL,
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // Pdeathsig refers to the thread that started the child
		err := c.cmd.Start()
		started <- err
		if err == nil {
			_ = c.cmd.Wait()
		}
		close(c.done)
	}()
	err = <-started
	for _, f := range []*os.File{ends[1], ends[3], c.cmd.ExtraFiles[2]} {
		f.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("creating the command's namespaces (user.max_mnt_namespaces and user.max_pid_namespaces limit them): %w", err)
	}
	return c, c.follow(ctx, out, messages)
}

// follow waits for the command's end, and keeps the last part of its outputs.
func (c *Cage) follow(ctx context.Context, out, messages *os.File) error {
	last, copied := &tail{}, make(chan struct{})
	go func() {
		defer close(copied)
		_, _ = io.Copy(last, out)
	}()
	defer context.AfterFunc(ctx, func() { _ = messages.SetReadDeadline(time.Now()) })()
	var stands, ended told
	from := json.NewDecoder(messages)
	err := from.Decode(&stands)
	if err == nil && stands.Error == "" {
		err = from.Decode(&ended)
		c.Ended = err == nil
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = nil
		}
	}
	c.hidden, c.Exit = stands.Hidden, ended.Exit
	_ = out.SetReadDeadline(time.Now())
	<-copied
	_ = out.SetReadDeadline(time.Time{})
	if raw, err := out.SyscallConn(); err == nil { // the pipe may hold the command's last words
		_ = raw.Read(func(fd uintptr) bool {
			var b [16 << 10]byte
			for range 4 { // a pipe's capacity
				n, _ := unix.Read(int(fd), b[:])
				_, _ = last.Write(b[:max(n, 0)])
			}
			return true
		})
	}
	c.Said = string(last.kept)
	switch {
	case stands.Error != "":
		return fmt.Errorf("building the command's cage: %s", stands.Error)
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("the command's cage ended early: %s", c.Said)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }() // of what the command left running
	return nil
}

// Close ends the cage and all its processes.
func (c *Cage) Close() {
	if c.cmd != nil && c.cmd.Process != nil {
		_ = c.cmd.Process.Kill()
		<-c.done
	}
	if c.root != nil {
		c.root.Close()
	}
	for _, f := range c.files {
		f.Close()
	}
}

// tail keeps the last bytes that are written to it.
type tail struct{ kept []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	t.kept = append(t.kept[:0], t.kept[max(0, len(t.kept)-9000):]...)
	return len(p), nil
}

// memory returns a tmpfs that is not mounted anywhere.
func memory() (*os.File, error) {
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fs) }()
	for _, option := range [][2]string{{"size", "256m"}, {"nr_inodes", "100k"}, {"mode", "755"}} {
		if err := unix.FsconfigSetString(fs, option[0], option[1]); err != nil {
			return nil, err
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return nil, err
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOSUID)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "tmpfs"), nil
}

func environment() []string {
	env := []string{"container=nodegate-rehearse", "PATH=" + program.SearchPath}
	for _, name := range []string{"PATH", "HOME", "LANG", "TERM"} {
		if value := os.Getenv(name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// Main is the cage's own process, and systemctl and service in it. The command line calls it with the arguments that follow
// Spec.Self, and parses none of them.
func Main(args []string) int {
	switch {
	case len(args) == 1 && args[0] == "build":
		return build()
	case len(args) > 1 && args[0] == "init":
		return start(args[1:])
	case len(args) > 1 && args[0] == "as":
		return standIn(args[1], args[2:])
	}
	return 2
}
