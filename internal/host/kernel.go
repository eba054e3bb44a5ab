package host

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
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

// noError is the kernel's maximum error of a clock that nobody keeps, in microseconds (NTP_PHASE_LIMIT of linux/timex.h): what sets the
// clock once leaves it so.
const noError = 16_000_000

// Synchronised asks the kernel: STA_UNSYNC is there until a program has set the clock and keeps it. chronyd without rtcsync leaves it
// there, and tells the maximum error only (set_sync_status of its sys_timex.c).
func (machineKernel) Synchronised() (bool, error) {
	var t unix.Timex
	if _, err := unix.Adjtimex(&t); err != nil {
		return false, fmt.Errorf("adjtimex: %w", err)
	}
	return synchronised(t), nil
}

func synchronised(t unix.Timex) bool { return t.Status&unix.STA_UNSYNC == 0 || t.Maxerror < noError }

func (machineKernel) LoadModule(ctx context.Context, name string) error {
	_, err := program.Run(ctx, "modprobe", "--", name)
	return err
}

// Version waits at most ten seconds: a kubelet whose 100 MB have not been read from a slow disk yet takes some of them.
func (machineKernel) Version(ctx context.Context, name string, flags ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := program.Run(ctx, name, append(flags, "--version")...)
	return strings.TrimSpace(string(out)), err
}

func (machineKernel) Complaint(ctx context.Context, name string, flags ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err := program.Run(ctx, name, flags...)
	if err == nil || ctx.Err() != nil {
		return "", err
	}
	return err.Error(), nil
}

// bootCountPath is the variable in which systemd-boot says which entry it booted, where it counts that entry's boots: a path in
// UTF-16 behind four bytes, like \loader\entries\node+2-1.conf (systemd.io/BOOT_LOADER_INTERFACE).
const bootCountPath = "/sys/firmware/efi/efivars/LoaderBootCountPath-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"

// BootTries returns how often the entry that was booted has been tried, this time included. counted is false where the boot loader
// does not count, or this entry is known to be good.
func (h *Host) BootTries() (tried int, counted bool) {
	text, err := h.Text(bootCountPath)
	if err != nil {
		return 0, false
	}
	m := regexp.MustCompile(`\+[0-9]+-([0-9]+)\.(conf|efi)$`).FindStringSubmatch(strings.ReplaceAll(text, "\x00", ""))
	if m == nil {
		return 0, false
	}
	tried, err = strconv.Atoi(m[1])
	return tried, err == nil
}
