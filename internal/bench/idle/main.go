// Command idle measures the cost of `nodegate watch` on an idle node, and then during a hundred thousand link notices. It runs in its own
// network namespace with 200 links and the built-in policies of one typical node.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
)

const (
	links   = 200
	notices = 100_000
	inside  = "NODEGATE_BENCH_INSIDE"
)

func main() {
	idle := flag.Duration("for", time.Minute, "length of the idle phase")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: idle [-for DURATION] NODEGATE-BINARY")
		os.Exit(2)
	}
	run := func() error { return measure(flag.Arg(0), *idle) }
	if os.Getenv(inside) == "" {
		run = enterNamespace
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "idle:", err)
		os.Exit(1)
	}
}

// enterNamespace runs this program again in its own network namespace, which ends with it.
func enterNamespace() error {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	return cmd.Run()
}

func measure(nodegate string, idle time.Duration) (err error) {
	dir, err := os.MkdirTemp("", "nodegate-idle-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	// repair = false: watch must not change this machine.
	text := "gate { repair = false }\nlink \"vxlan\" {\n  match { kind = \"vxlan\" }\n  mtu = 1450\n}\n"
	// A node has one kube-proxy mode and one CNI plugin.
	for _, name := range []string{"kubernetes", "kube-proxy-iptables", "flannel-vxlan", "counters"} {
		text += fmt.Sprintf("use %q {}\n", name)
	}
	file := filepath.Join(dir, "node.hcl")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return err
	}
	for i := range links / 2 {
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: fmt.Sprintf("veth%d", i)},
			PeerName: fmt.Sprintf("peer%d", i)}); err != nil {
			return fmt.Errorf("adding a link: %w", err)
		}
	}
	cmd := exec.Command(nodegate, "watch", "--policy", file)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cmd.Process.Signal(syscall.SIGTERM), cmd.Wait()) }()
	time.Sleep(5 * time.Second) // do not measure the first round
	before, err := readUsage(cmd.Process.Pid)
	if err != nil {
		return err
	}
	time.Sleep(idle)
	after, err := readUsage(cmd.Process.Pid)
	if err != nil {
		return err
	}
	fmt.Printf("%d links, idle for %s:\n", links, idle)
	fmt.Printf("  %.3f %% of a core (%s in watch, %s in programs it ran), RSS %.1f MiB\n",
		100*float64(after.own+after.children-before.own-before.children)/float64(idle), after.own-before.own,
		after.children-before.children, float64(after.rss)/(1<<20))

	l, err := netlink.LinkByName("veth0")
	if err != nil {
		return err
	}
	fmt.Printf("%d notices about a link that no requirement matches:\n", notices)
	for part := range 4 {
		for i := range notices / 4 {
			if err := netlink.LinkSetMTU(l, 1400+i%2); err != nil {
				return err
			}
		}
		now, err := readUsage(cmd.Process.Pid)
		if err != nil {
			return err
		}
		fmt.Printf("  after %6d: RSS %.1f MiB, %.1f µs of processor time per notice\n", (part+1)*notices/4, float64(now.rss)/(1<<20),
			float64((now.own-after.own).Microseconds())/float64((part+1)*notices/4))
	}
	return nil
}

// processUsage is the processor time and memory of a process.
type processUsage struct {
	own, children time.Duration
	rss           int64 // bytes
}

// readUsage reads the time of children and the memory from /proc/PID/stat (proc(5)). Its times (fields 14 to
// 17) are ticks of a hundredth of a second, which is too coarse for the process itself. That time comes
// from the schedstat files of all threads, in nanoseconds.
func readUsage(pid int) (processUsage, error) {
	var u processUsage
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return u, err
	}
	fields := strings.Fields(string(stat[strings.LastIndex(string(stat), ")")+1:]))
	for _, i := range []int{13, 14} {
		ticks, err := strconv.Atoi(fields[i])
		if err != nil {
			return u, err
		}
		u.children += time.Duration(ticks) * 10 * time.Millisecond
	}
	pages, err := strconv.ParseInt(fields[21], 10, 64)
	if err != nil {
		return u, err
	}
	u.rss = pages * int64(os.Getpagesize())
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, task := range tasks {
		var ns int64
		text, readErr := os.ReadFile(task)
		if readErr == nil {
			_, readErr = fmt.Sscan(string(text), &ns)
		}
		err = errors.Join(err, readErr)
		u.own += time.Duration(ns)
	}
	return u, err
}
