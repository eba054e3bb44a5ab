// Package program runs the machine's own programs, with a fixed environment.
package program

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"nodegate/internal/host/activity"
	"nodegate/internal/host/config"
)

// SearchPath is the search path for programs. The caller's PATH is ignored: programs that run as
// root during boot must belong to the system.
const SearchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Find returns the path of a program.
func Find(name string) (string, error) {
	if filepath.IsAbs(name) {
		return exec.LookPath(name)
	}
	for dir := range strings.SplitSeq(SearchPath, ":") {
		if p, err := exec.LookPath(dir + "/" + name); err == nil {
			return p, nil
		}
	}
	return "", fmt.Errorf("%s is not installed: looked in %s", name, SearchPath)
}

// Environment returns the environment of every program that nodegate runs.
func Environment() []string { return []string{"PATH=" + SearchPath, "LC_ALL=C"} }

// Run runs a program and returns its standard output. The error contains the program's standard
// error.
func Run(ctx context.Context, name string, args ...string) ([]byte, error) {
	line := strings.Join(append([]string{name}, args...), " ")
	cmd, stderr, err := command(ctx, name, args)
	if err != nil {
		return nil, err
	}
	out := bounded{limit: maxOutput}
	cmd.Stdout = &out
	defer activity.Doing(ctx, line)()
	began := time.Now()
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%s did not finish in %s and was killed: %w", line, time.Since(began).Round(100*time.Millisecond), ctx.Err())
		}
		if out.flood {
			return nil, fmt.Errorf("%s: it printed more than %d bytes and was killed", line, maxOutput)
		}
		said := config.PlainMessage(strings.Join(strings.Split(strings.TrimSpace(stderr.kept.String()), "\n"), "; "), line)
		if said == "" {
			return nil, fmt.Errorf("%s: %w", line, err)
		}
		return nil, fmt.Errorf("%s: %s", name, strings.TrimPrefix(said, name+": "))
	}
	return out.kept.Bytes(), nil
}

// Feed runs a program like Run and writes text to its standard input. No error and no progress names
// the arguments: arguments of the policy's own program may contain a secret.
func Feed(ctx context.Context, text, name string, args ...string) error {
	cmd, stderr, err := command(ctx, name, args)
	if err != nil {
		return err
	}
	cmd.Stdin = strings.NewReader(text)
	defer activity.Doing(ctx, name)()
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, config.PlainMessage(strings.Join(strings.Fields(stderr.kept.String()), " "), name, text))
	}
	return nil
}

// Stream runs a program and passes its output to read while the program runs.
// source is the command line.
func Stream(ctx context.Context, read func(source string, r io.Reader) error, name string, args ...string) error {
	cmd, stderr, err := command(ctx, name, args)
	if err != nil {
		return err
	}
	line := strings.Join(append([]string{name}, args...), " ")
	defer activity.Doing(ctx, line)()
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	// A child process that outlives the program may hold its output open for ever.
	defer context.AfterFunc(ctx, func() { out.Close() })()
	readErr := read(line, out)
	// Drain the rest of the output, or the program never exits.
	_, _ = io.Copy(io.Discard, out)
	err = cmd.Wait()
	if ctx.Err() != nil {
		return fmt.Errorf("%s was killed before it finished: %w", line, ctx.Err())
	}
	if err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, config.PlainMessage(strings.TrimSpace(stderr.kept.String()), line))
	}
	return readErr
}

func command(ctx context.Context, name string, args []string) (*exec.Cmd, *bounded, error) {
	path, err := Find(name)
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = Environment()
	cmd.WaitDelay = 500 * time.Millisecond // shorter than the time that a verb has after its --timeout
	stderr := &bounded{limit: maxStderr, drop: true}
	cmd.Stderr = stderr
	return cmd, stderr, nil
}

// Complaint runs a program that is expected to fail, and returns its standard error, with lines joined by "; ", or "" if it succeeds.
// No error and no progress names its arguments, which may contain a secret.
func Complaint(ctx context.Context, name string, args ...string) (string, error) {
	cmd, stderr, err := command(ctx, name, args)
	if err != nil {
		return "", err
	}
	defer activity.Doing(ctx, name)()
	err = cmd.Run()
	if ctx.Err() != nil {
		return "", fmt.Errorf("%s did not finish in time and was killed: %w", name, ctx.Err())
	}
	if _, exited := errors.AsType[*exec.ExitError](err); !exited {
		return "", err
	}
	return strings.ReplaceAll(strings.TrimSpace(stderr.kept.String()), "\n", "; "), nil
}

const secretLimit = 1 << 20

// Secret runs a program with additional variables and returns its standard output, at most 1 MiB,
// which never appears in an error, as little as its standard error. When ctx ends, the program's child processes are killed too.
func Secret(ctx context.Context, env []string, name string, args ...string) ([]byte, error) {
	cmd, _, err := command(ctx, name, args)
	if err != nil {
		return nil, err
	}
	out := &bounded{limit: secretLimit}
	cmd.Stdout, cmd.Stderr = out, nil
	cmd.Env = append(cmd.Env, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	defer activity.Doing(ctx, name)()
	began := time.Now()
	switch err := cmd.Run(); {
	case out.flood:
		return nil, fmt.Errorf("it printed more than %d bytes", out.limit)
	case err != nil && ctx.Err() != nil:
		return nil, fmt.Errorf("it did not finish in %s and was killed: %w", time.Since(began).Round(100*time.Millisecond), ctx.Err())
	case err != nil:
		return nil, fmt.Errorf("%w; its error output is not shown, because it may contain credentials", err)
	}
	return out.kept.Bytes(), nil
}

// unprivileged is the user and group of programs that need no privileges.
const unprivileged = 65534

// GiveAway makes a file belong to the user as whom Unprivileged runs programs.
func GiveAway(name string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	return os.Chown(name, unprivileged, unprivileged)
}

// Unprivileged runs a program with additional variables, as an ordinary user if nodegate runs as root, and returns its standard
// output and its standard error, at most 64 KiB.
func Unprivileged(ctx context.Context, env []string, name string, args ...string) (output []byte, said string, err error) {
	cmd, stderr, err := command(ctx, name, args)
	if err != nil {
		return nil, "", err
	}
	out := &bounded{limit: maxOutput}
	cmd.Stdin, cmd.Stdout = strings.NewReader(""), out // a chroot may have no /dev/null
	cmd.WaitDelay = 5 * time.Second                    // its output is long
	cmd.Env = append(cmd.Env, env...)
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: unprivileged, Gid: unprivileged}}
	}
	defer activity.Doing(ctx, name)()
	if err = cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		err = fmt.Errorf("%s: %w", name, err)
	}
	return out.kept.Bytes(), stderr.kept.String(), err
}

// statusLimit bounds the kept output of Status.
const statusLimit = 4 << 10

// Status runs a program and returns its exit status and the beginning of its standard output. When it has ended, or ctx ends, its child
// processes are killed too, except those that cleared their environment. An error means that the program did not exit by itself; it does
// not name the arguments.
func Status(ctx context.Context, name string, args ...string) (status int, output string, err error) {
	cmd, _, err := command(ctx, name, args)
	if err != nil {
		return 0, "", err
	}
	out := &bounded{limit: statusLimit, drop: true}
	cmd.Stdout, cmd.Stderr = out, nil
	mark := "NODEGATE_CHECK=" + rand.Text()
	cmd.Env, cmd.SysProcAttr = append(cmd.Env, mark), &syscall.SysProcAttr{Setpgid: true}
	defer killMarked(mark)
	cmd.Cancel = func() error { killMarked(mark); return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	defer activity.Doing(ctx, name)()
	began := time.Now()
	err = cmd.Run()
	switch {
	case err != nil && ctx.Err() != nil:
		return 0, "", fmt.Errorf("%s did not finish in %s and was killed: %w", name, time.Since(began).Round(100*time.Millisecond), ctx.Err())
	case cmd.ProcessState != nil && cmd.ProcessState.Exited():
		return cmd.ProcessState.ExitCode(), out.kept.String(), nil
	}
	return 0, "", fmt.Errorf("%s: %w", name, err)
}
