package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/netns"
	"nodegate/internal/host/program"
	"nodegate/internal/sorted"
)

// Process is a running program.
type Process struct {
	PID     int
	Args    []string      // its command line; empty for a kernel thread and a dead process
	Name    string        // the kernel's name for it, at most 15 bytes
	Parent  int           // the parent's PID
	Started time.Duration // time since the boot
	Used    time.Duration // processor time, including time in the kernel
	State   byte          // R running, S sleeping, D uninterruptible, T stopped, t traced, Z dead, ...
}

// ProcessorTime returns the processor time that this process and its exited child processes have
// used, including time in the kernel.
func (h *Host) ProcessorTime() time.Duration {
	var sum time.Duration
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var used unix.Rusage
		if unix.Getrusage(who, &used) == nil { // it cannot fail with these arguments
			sum += time.Duration(used.Utime.Nano() + used.Stime.Nano())
		}
	}
	return sum
}

// Processes returns root's processes in this network namespace, sorted by PID. kube-proxy, kubelet and the container runtime are
// among them; a Pod's processes with such names are not, nor are processes that cannot be read or have ended.
func (h *Host) Processes() ([]Process, error) {
	names, err := h.Files.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	if _, err := h.Files.ReadLink("/proc/1/ns/net"); err != nil && h.hidesProcesses() {
		return nil, errHidden
	}
	own, err := h.Files.ReadLink("/proc/self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("determining this network namespace: %w", err)
	}
	var list []Process
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if net, err := h.Files.ReadLink("/proc/" + name + "/ns/net"); err != nil || net != own {
			continue
		}
		status, err := h.Files.ReadFile("/proc/" + name + "/status")
		_, ids, _ := strings.Cut(string(status), "\nUid:")
		if f := strings.Fields(ids); err != nil || len(f) < 2 || f[1] != "0" { // the second one is the effective user
			continue
		}
		if p, err := h.Process(pid); err == nil {
			list = append(list, p)
		}
	}
	sorted.By(list, func(a, b Process) int { return a.PID - b.PID })
	return list, nil
}

var errHidden = errors.New("/proc is mounted with hidepid and hides processes from this one: mount it without hidepid, or with the " +
	"gid= of a group, and add that group to nodegate's unit with SupplementaryGroups=")

// hidesProcesses reports whether /proc hides processes of other users. They are visible to its gid and with CAP_SYS_PTRACE.
func (h *Host) hidesProcesses() bool {
	mounts, err := h.Files.ReadFile("/proc/mounts")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 3 && f[1] == "/proc" && strings.Contains(f[3], "hidepid=") {
			return true
		}
	}
	return false
}

// ServiceOf returns the systemd service in whose cgroup a process runs, or "" if it runs in a container or elsewhere.
func (h *Host) ServiceOf(pid int) (string, error) {
	cgroups, err := h.Files.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	inPod := regexp.MustCompile(`kubepods|/crio-|/docker/|cri-containerd`).Match(cgroups)
	unit := regexp.MustCompile(`(?m)/([^/\n]+\.service)$`).FindSubmatch(cgroups)
	if err != nil || inPod || unit == nil {
		return "", err
	}
	return string(unit[1]), nil
}

// Process returns one process.
func (h *Host) Process(pid int) (Process, error) {
	dir := "/proc/" + strconv.Itoa(pid)
	stat, err := h.Files.ReadFile(dir + "/stat")
	if err != nil {
		return Process{}, err
	}
	// "12 (name with ) and spaces) S ..."
	open, end := strings.IndexByte(string(stat), '('), strings.LastIndexByte(string(stat), ')')
	if open < 0 || end < open || end+2 >= len(stat) {
		return Process{}, fmt.Errorf("reading %s/stat: %.80q is not a process state", dir, stat)
	}
	p := Process{PID: pid, Name: string(stat[open+1 : end]), State: stat[end+2]}
	if rest := strings.Fields(string(stat[end+3:])); len(rest) > 0 {
		p.Parent, _ = strconv.Atoi(rest[0]) // 0 if it is not a number: no process
		if len(rest) > 18 {
			p.Started, p.Used = ticks(rest[18]), ticks(rest[10])+ticks(rest[11])
		}
	}
	line, err := h.Files.ReadFile(dir + "/cmdline")
	if err != nil {
		return Process{}, err
	}
	if text := strings.TrimRight(string(line), "\x00"); text != "" {
		p.Args = strings.Split(text, "\x00")
	}
	return p, nil
}

// ticks parses a time in USER_HZ, which is 100 on every architecture (proc_pid_stat(5)). It returns
// 0 if the time is not a number.
func ticks(text string) time.Duration {
	n, _ := strconv.ParseInt(text, 10, 64)
	return time.Duration(n) * 10 * time.Millisecond
}

// ClockOffset returns the wall clock minus the time since boot, which changes only when the clock is set.
func ClockOffset() time.Duration {
	var wall, boot unix.Timespec
	_, _ = unix.ClockGettime(unix.CLOCK_REALTIME, &wall), unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) // cannot fail
	return time.Duration(wall.Nano() - boot.Nano())
}

// Uptime returns the time since the boot.
func (h *Host) Uptime() (time.Duration, error) {
	text, err := h.Text("/proc/uptime")
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(text, " ")
	seconds, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 0, fmt.Errorf("/proc/uptime begins with %.20q, which is not a number", first)
	}
	return time.Duration(seconds * float64(time.Second)), nil
}

// initialPIDs is the inode of the first PID namespace, PROC_PID_INIT_INO of the kernel's include/linux/proc_ns.h.
const initialPIDs = "pid:[4026531836]"

// SeesAllProcesses reports whether this process sees all processes of the machine: no PID namespace
// hides any.
func (h *Host) SeesAllProcesses() bool {
	ns, err := h.Files.ReadLink("/proc/self/ns/pid")
	return err == nil && ns == initialPIDs
}

// Listener is a TCP socket that listens.
type Listener struct {
	netip.AddrPort
	Inode, Table string // Table is the file that lists it
}

// Listening returns the sockets on which a process listens. It returns an error if any of its open files cannot be identified.
func (h *Host) Listening(pid int) ([]Listener, error) {
	sockets, err := h.Sockets(pid)
	if err != nil {
		return nil, fmt.Errorf("listing the sockets of process %d: %w", pid, err)
	}
	all, err := h.Listeners("/proc/" + strconv.Itoa(pid))
	return slices.DeleteFunc(all, func(l Listener) bool { return !sockets[l.Inode] }), err
}

// Sockets returns the inodes of the sockets that a process has open. It returns an error, and those before it, if a file cannot be
// identified, which needs CAP_SYS_PTRACE if the process has more capabilities than this one.
func (h *Host) Sockets(pid int) (map[string]bool, error) {
	dir := "/proc/" + strconv.Itoa(pid) + "/fd/"
	fds, err := h.Files.ReadDir(strings.TrimSuffix(dir, "/"))
	sockets := map[string]bool{}
	for _, fd := range fds {
		to, err := h.Files.ReadLink(dir + fd)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // it may have been closed
			return sockets, err
		}
		if inode, ok := strings.CutPrefix(to, "socket:["); ok {
			sockets[strings.TrimSuffix(inode, "]")] = true
		}
	}
	return sockets, err
}

// Listeners returns the sockets that listen in the network namespace of a directory of /proc.
func (h *Host) Listeners(dir string) (list []Listener, err error) {
	for _, table := range []string{dir + "/net/tcp", dir + "/net/tcp6"} {
		text, err := h.Files.ReadFile(table)
		if errors.Is(err, fs.ErrNotExist) {
			continue // without IPv6
		}
		if err != nil {
			return nil, fmt.Errorf("listing sockets: %w", err)
		}
		for line := range strings.Lines(string(text)) {
			const listen = "0A"
			words := strings.Fields(line)
			if len(words) < 10 || words[3] != listen {
				continue
			}
			if a, ok := netns.KernelAddress(words[1]); ok {
				list = append(list, Listener{a, words[9], table})
			}
		}
	}
	return list, nil
}

// Feed runs a command that the policy names and writes text to its standard input, until ctx ends.
// The error contains the command's error output.
func Feed(ctx context.Context, text string, command []string) error {
	return program.Feed(ctx, text, command[0], command[1:]...)
}
