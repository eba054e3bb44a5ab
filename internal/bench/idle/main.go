// Command idle measures what `nodegate watch` costs a node on which nothing
// happens, and then one on which a hundred thousand link notices come: in a
// network namespace of its own, with 200 links and every built-in policy.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"

	"nodegate/policy"
)

const (
	links   = 200
	notices = 100_000
	inside  = "NODEGATE_BENCH_INSIDE"
)

func main() {
	idle := flag.Duration("for", time.Minute, "how long nothing happens")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: idle [-for DURATION] NODEGATE-BINARY")
		os.Exit(2)
	}
	run := func() error { return measure(flag.Arg(0), *idle) }
	if os.Getenv(inside) == "" {
		run = enter
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "idle:", err)
		os.Exit(1)
	}
}

// enter runs the program again in a namespace that ends with it.
func enter() error {
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
	// repair = false: nothing of the machine that runs this is changed.
	text := "gate { repair = false }\nlink \"vxlan\" {\n  match { kind = \"vxlan\" }\n  mtu = 1450\n}\n"
	// One kube-proxy mode and one CNI, as a node has them.
	for _, name := range policy.Builtins() {
		if slices.Contains([]string{"kubernetes", "kube-proxy-iptables", "flannel-vxlan", "counters"}, name) {
			text += fmt.Sprintf("use %q {}\n", name)
		}
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
	time.Sleep(5 * time.Second) // the first round is not idleness
	before, err := usage(cmd.Process.Pid)
	if err != nil {
		return err
	}
	time.Sleep(idle)
	after, err := usage(cmd.Process.Pid)
	if err != nil {
		return err
	}
	fmt.Printf("%d links, nothing happens for %s:\n", links, idle)
	fmt.Printf("  %.3f %% of a core (%s of its own, %s of the programs it ran), RSS %.1f MiB\n",
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
		now, err := usage(cmd.Process.Pid)
		if err != nil {
			return err
		}
		fmt.Printf("  after %6d: RSS %.1f MiB, %.1f µs of a core a notice\n", (part+1)*notices/4, float64(now.rss)/(1<<20),
			float64((now.own-after.own).Microseconds())/float64((part+1)*notices/4))
	}
	return nil
}

// use is what a process has used so far.
type use struct {
	own, children time.Duration
	rss           int64 // bytes
}

// usage reads /proc/PID/stat (proc(5)): the 14th to 17th field are ticks of a
// hundredth of a second, which is too coarse for its own time; that comes from
// schedstat, in nanoseconds, of every thread.
func usage(pid int) (use, error) {
	var u use
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
