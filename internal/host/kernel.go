package host

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/program"
)

// machineKernel is the running kernel. files are the machine's.
type machineKernel struct{ files Files }

func (machineKernel) Release() (string, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "", fmt.Errorf("uname: %w", err)
	}
	return unix.ByteSliceToString(u.Release[:]), nil
}

// PlainVersion returns the name and the version in the output of a program, and the backend of
// iptables.
func PlainVersion(output string) string {
	return regexp.MustCompile(`([A-Za-z]+ )?v?[0-9]+(\.[\w.+~-]*)?( \((nf_tables|legacy)\))?`).FindString(output)
}

// noError is the kernel's maximum error for a clock that no program disciplines, in microseconds
// (NTP_PHASE_LIMIT of linux/timex.h). A program that sets the clock once leaves this value.
const noError = 16_000_000

// Synchronised queries the kernel: STA_UNSYNC stays set until a program sets the clock and keeps it
// synchronised. chronyd without rtcsync leaves the flag set and reports only the maximum error
// (set_sync_status in its sys_timex.c).
func (machineKernel) Synchronised() (bool, error) {
	var t unix.Timex
	if _, err := unix.Adjtimex(&t); err != nil {
		return false, fmt.Errorf("adjtimex: %w", err)
	}
	return synchronised(t), nil
}

func synchronised(t unix.Timex) bool { return t.Status&unix.STA_UNSYNC == 0 || t.Maxerror < noError }

func (machineKernel) LoadModule(ctx context.Context, name string, options ...string) error {
	_, err := program.Run(ctx, "modprobe", append([]string{"--", name}, options...)...)
	return err
}

// Version waits at most ten seconds: starting kubelet takes several seconds while its 100 MB are
// read from a slow disk.
func (machineKernel) Version(ctx context.Context, name string, flags ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := program.Run(ctx, name, append(slices.Clone(flags), "--version")...)
	return PlainVersion(string(out)), err
}

func (k machineKernel) Complaint(ctx context.Context, name string, flags ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	said, err := program.Complaint(ctx, name, flags...)
	return KubeletWords(said, k.files), err
}
