package host

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// machineKernel is the running kernel.
type machineKernel struct{}

func (machineKernel) Release() (string, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "", fmt.Errorf("uname: %w", err)
	}
	return unix.ByteSliceToString(u.Release[:]), nil
}

func (machineKernel) LoadModule(ctx context.Context, name string) error {
	_, err := run(ctx, "modprobe", "--", name)
	return err
}

// Version waits at most two seconds.
func (machineKernel) Version(ctx context.Context, program string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	out, err := run(ctx, program, "--version")
	return strings.TrimSpace(string(out)), err
}

// run executes a program of the machine with a fixed environment and answers
// its standard output; the error holds what it said on standard error.
func run(ctx context.Context, name string, args ...string) ([]byte, error) {
	path, err := lookPath(name)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = []string{"PATH=" + searchPath, "LC_ALL=C"}
	cmd.WaitDelay = time.Second
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		said := strings.Join(strings.Split(strings.TrimSpace(complaint.String()), "\n"), "; ")
		if said == "" {
			return nil, fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
		}
		return nil, fmt.Errorf("%s: %s", name, strings.TrimPrefix(said, name+": "))
	}
	return out.Bytes(), nil
}

const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// lookPath ignores the caller's PATH: what runs as root in the boot path is the
// system's own.
func lookPath(name string) (string, error) {
	for _, dir := range strings.Split(searchPath, ":") {
		if p, err := exec.LookPath(dir + "/" + name); err == nil {
			return p, nil
		}
	}
	return "", fmt.Errorf("%s is not installed: looked in %s", name, searchPath)
}
