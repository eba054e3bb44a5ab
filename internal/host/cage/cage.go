// Package cage runs a command of the operator where it can change nothing of the machine, and lists the changes that it tried.
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
	Outside *Outside
	Dir     string // where the command starts, if it is there in the cage
	Stdin   []byte // what the command reads
}

// Cage is a command's namespaces. They end with Close or with the caller.
type Cage struct {
	Exit  int    // 127: not found; 128+n: ended by signal n
	Ended bool   // the command ended before ctx did
	Left  int    // processes that still ran when the command had ended
	Said  string // the last 9,000 bytes of its outputs

	outside *Outside
	hidden  []string
	modules map[string]bool // before the command
	root    *os.Root        // its files in memory
	out     *os.File
	cmd     *exec.Cmd
	done    chan struct{}
}

// told is a message of the cage's own process: when the cage stands, and when the command has ended.
type told struct {
	Hidden []string
	Error  string
	Exit   int
	Left   int
}

// Run runs a command in a cage and returns when it or ctx has ended. Its processes stay until Close. The caller is root of its own
// user, mount and PID namespaces, has /proc of those, and no other thread of it needs /tmp.
func Run(ctx context.Context, s Spec) (*Cage, error) {
	c := &Cage{outside: s.Outside, modules: modules(), done: make(chan struct{})}
	if err := unix.Mount("tmpfs", stage, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=256m,nr_inodes=100k,mode=755"); err != nil {
		return nil, fmt.Errorf("mounting a tmpfs for the command's files: %w", err)
	}
	defer func() { _ = unix.Unmount(stage, unix.MNT_DETACH) }() // the child keeps its own
	root, err1 := os.OpenRoot(stage)
	out, outputs, err2 := os.Pipe()
	network, err3 := os.Open(fmt.Sprintf("/proc/self/fd/%d", s.Network))
	messages, message, err4 := os.Pipe()
	spec, err5 := json.Marshal(s)
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		return nil, err
	}
	defer messages.Close()
	c.root, c.out, c.cmd = root, out, exec.Command(s.Self[0], append(s.Self[1:len(s.Self):len(s.Self)], "build")...)
	c.cmd.Args[0] = os.Args[0]
	c.cmd.Env = []string{"container=nodegate-rehearse", "HOME=/root", "PATH=" + program.SearchPath}
	for _, name := range []string{"PATH", "HOME", "LANG", "TERM"} {
		if value := os.Getenv(name); value != "" {
			c.cmd.Env = append(c.cmd.Env, name+"="+value)
		}
	}
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = bytes.NewReader(spec), outputs, outputs
	c.cmd.ExtraFiles = append([]*os.File{message, network}, s.Outside.Files...)
	c.cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL,
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // Pdeathsig refers to the thread that started the child
		started <- c.cmd.Start()
		_ = c.cmd.Wait()
		close(c.done)
	}()
	err := <-started
	for _, f := range []*os.File{network, message, outputs} {
		f.Close()
	}
	if err == nil {
		err = c.follow(ctx, messages)
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("the command's cage (user.max_mnt_namespaces and the like limit it): %w", err)
	}
	return c, nil
}

// follow waits for the command's end.
func (c *Cage) follow(ctx context.Context, messages *os.File) error {
	defer context.AfterFunc(ctx, func() { _ = messages.SetReadDeadline(time.Now()) })()
	last, copied := &tail{}, make(chan struct{})
	go func() {
		_, _ = io.Copy(last, c.out)
		close(copied)
	}()
	var stands, ended told
	from := json.NewDecoder(messages)
	err := from.Decode(&stands)
	if err == nil && stands.Error != "" {
		return errors.New(stands.Error)
	}
	if c.hidden = stands.Hidden; err == nil {
		err = from.Decode(&ended)
		c.Ended, c.Exit, c.Left = err == nil, ended.Exit, ended.Left
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = nil
		}
	}
	_ = c.out.SetReadDeadline(time.Now())
	<-copied
	_ = c.out.SetReadDeadline(time.Time{})
	if raw, err := c.out.SyscallConn(); err == nil {
		_ = raw.Read(func(fd uintptr) bool { // the command's last words
			var pipe [64 << 10]byte
			n, _ := unix.Read(int(fd), pipe[:])
			_, _ = last.Write(pipe[:max(n, 0)])
			return true
		})
	}
	c.Said = string(last.kept)
	go func() { _, _ = io.Copy(io.Discard, c.out) }() // of what the command left running
	if err != nil {
		return fmt.Errorf("%w %s", err, c.Said)
	}
	return nil
}

// Close ends the cage and all its processes.
func (c *Cage) Close() {
	if c.cmd.Process != nil {
		_ = c.cmd.Process.Kill()
		<-c.done
	}
	c.root.Close()
	c.out.Close()
}

// tail keeps the last bytes that are written to it.
type tail struct{ kept []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	t.kept = append(t.kept[:0], t.kept[max(0, len(t.kept)-9000):]...)
	return len(p), nil
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
