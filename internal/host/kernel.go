package host

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/config"
	"nodegate/internal/host/program"
)

// machineKernel is the running kernel. Its programs get the values that the filter hides from checks.
type machineKernel struct{ hidden *config.Filter }

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
func (k machineKernel) Version(ctx context.Context, name string, flags ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := program.Run(ctx, k.hidden.Reveal(name), append(k.revealed(flags), "--version")...)
	return PlainVersion(string(out)), err
}

func (k machineKernel) Complaint(ctx context.Context, name string, flags ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	said, err := program.Complaint(ctx, k.hidden.Reveal(name), k.revealed(flags)...)
	return kubeletWords(said), err
}

func (k machineKernel) revealed(flags []string) []string {
	all := make([]string, len(flags))
	for i, flag := range flags {
		all[i] = k.hidden.Reveal(flag)
	}
	return all
}

// bootCountPath is the variable in which systemd-boot stores the entry that it booted, if it counts
// that entry's boots: a UTF-16 path after four bytes, like \loader\entries
// ode+2-1.conf (systemd.io/BOOT_LOADER_INTERFACE).
const bootCountPath = "/sys/firmware/efi/efivars/LoaderBootCountPath-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"

// BootTries returns how often the booted entry has been tried, including this time. counted is
// false if the boot loader does not count, or if this entry is known to be good.
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
