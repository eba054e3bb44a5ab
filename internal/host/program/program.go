// Package program runs the machine's own programs, with a fixed environment.
package program

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"nodegate/internal/host/activity"
)

// SearchPath is where programs are looked for. The caller's PATH is ignored:
// what runs as root in the boot path is the system's own.
const SearchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Find returns the path of a program.
func Find(name string) (string, error) {
	if filepath.IsAbs(name) {
		return exec.LookPath(name)
	}
	for _, dir := range strings.Split(SearchPath, ":") {
		if p, err := exec.LookPath(dir + "/" + name); err == nil {
			return p, nil
		}
	}
	return "", fmt.Errorf("%s is not installed: looked in %s", name, SearchPath)
}

// Environment returns the environment of every program that nodegate runs.
func Environment() []string { return []string{"PATH=" + SearchPath, "LC_ALL=C"} }

// Run runs a program and returns its standard output. The error contains what
// the program printed on standard error.
func Run(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd, stderr, err := command(ctx, name, args)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	cmd.Stdout = &out
	line := strings.Join(append([]string{name}, args...), " ")
	defer activity.Doing(ctx, line)()
	began := time.Now()
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%s did not end in %s and was stopped: %w", line, time.Since(began).Round(100*time.Millisecond), ctx.Err())
		}
		said := strings.Join(strings.Split(strings.TrimSpace(stderr.String()), "\n"), "; ")
		if said == "" {
			return nil, fmt.Errorf("%s: %w", line, err)
		}
		return nil, fmt.Errorf("%s: %s", name, strings.TrimPrefix(said, name+": "))
	}
	return out.Bytes(), nil
}

// Feed runs a program that reads a text, as Run does.
func Feed(ctx context.Context, text, name string, args ...string) error {
	cmd, stderr, err := command(ctx, name, args)
	if err != nil {
		return err
	}
	cmd.Stdin = strings.NewReader(text)
	defer activity.Doing(ctx, strings.Join(append([]string{name}, args...), " "))()
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, strings.Join(strings.Fields(stderr.String()), " "))
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
	readErr := read(line, out)
	// Drain what read left, or the program never ends.
	_, _ = io.Copy(io.Discard, out)
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(stderr.String()))
	}
	return readErr
}

func command(ctx context.Context, name string, args []string) (*exec.Cmd, *bytes.Buffer, error) {
	path, err := Find(name)
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = Environment()
	cmd.WaitDelay = time.Second
	stderr := &bytes.Buffer{}
	cmd.Stderr = stderr
	return cmd, stderr, nil
}

const (
	secretLimit    = 1 << 20
	complaintLimit = 1 << 10
)

// Secret runs a program with more variables and returns its standard output, at most 1 MiB, which no error contains. With ctx end
// the processes that it has started too.
func Secret(ctx context.Context, env []string, name string, args ...string) ([]byte, error) {
	cmd, _, err := command(ctx, name, args)
	if err != nil {
		return nil, err
	}
	out, complaints := &bounded{limit: secretLimit}, &bounded{limit: complaintLimit}
	cmd.Stdout, cmd.Stderr = out, complaints
	cmd.Env = append(cmd.Env, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	defer activity.Doing(ctx, name)()
	began := time.Now()
	switch err := cmd.Run(); {
	case out.more:
		return nil, fmt.Errorf("it printed more than %d bytes", out.limit)
	case err != nil && ctx.Err() != nil:
		return nil, fmt.Errorf("it did not end in %s and was stopped: %w", time.Since(began).Round(100*time.Millisecond), ctx.Err())
	case err != nil:
		return nil, fmt.Errorf("%w: %s", err, strings.Join(strings.Fields(complaints.text.String()), " "))
	}
	return out.text.Bytes(), nil
}

// bounded keeps so many bytes, and drops what is more.
type bounded struct {
	text  bytes.Buffer // not embedded: os/exec would call its ReadFrom
	limit int
	more  bool
}

func (b *bounded) Write(p []byte) (int, error) {
	fits := p[:min(len(p), b.limit-b.text.Len())]
	b.text.Write(fits)
	b.more = b.more || len(fits) < len(p)
	return len(p), nil
}
