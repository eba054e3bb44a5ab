package host

import (
	"context"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/program"
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

// Synchronised asks the kernel: STA_UNSYNC is there until a program such as chronyd has set the clock and keeps it.
func (machineKernel) Synchronised() (bool, error) {
	var t unix.Timex
	if _, err := unix.Adjtimex(&t); err != nil {
		return false, fmt.Errorf("adjtimex: %w", err)
	}
	return t.Status&unix.STA_UNSYNC == 0, nil
}

func (machineKernel) LoadModule(ctx context.Context, name string) error {
	_, err := program.Run(ctx, "modprobe", "--", name)
	return err
}

// Version waits at most two seconds.
func (machineKernel) Version(ctx context.Context, name string, flags ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	out, err := program.Run(ctx, name, append(flags, "--version")...)
	return strings.TrimSpace(string(out)), err
}
