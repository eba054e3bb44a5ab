// Command bench compares `nodegate check` of twelve sysctls and an interface with a shell script, with goss if it is installed, and with a
// program that only reads the files. All of them run in turns, so that other load on the machine does not distort the ratios.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

var sysctls = []string{
	"net.ipv4.ip_forward", "net.ipv4.conf.all.rp_filter", "net.ipv4.tcp_syncookies", "net.ipv4.ip_local_port_range",
	"net.core.somaxconn", "kernel.panic", "kernel.panic_on_oops", "kernel.pid_max", "vm.overcommit_memory",
	"vm.panic_on_oom", "fs.inotify.max_user_watches", "fs.file-max",
}

const (
	rounds       = 100
	floorPackage = "nodegate/internal/bench/floor"
)

// contender is one way to do the same check.
type contender struct {
	name string
	argv []string
	took []time.Duration
	rss  int64 // KiB, the maximum of all runs
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: bench NODEGATE-BINARY [OTHER...]")
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if err := runBench(ctx, os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func runBench(ctx context.Context, nodegate string, others []string) error {
	dir, err := os.MkdirTemp("", "nodegate-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	all, err := newContenders(ctx, dir, nodegate)
	if err != nil {
		return err
	}
	for _, other := range others {
		all = append(all, &contender{name: filepath.Base(other) + " check", argv: append([]string{other}, all[0].argv[1:]...)})
	}
	for _, c := range all {
		if err := c.run(ctx, false); err != nil {
			return err
		}
	}
	for range rounds {
		for _, c := range all {
			if err := c.run(ctx, true); err != nil {
				return err
			}
		}
	}
	check := all[0].median()
	fmt.Printf("12 sysctls and an interface, median of %d alternating runs:\n", rounds)
	for _, c := range all {
		fmt.Printf("  %-18s %8.2f ms   peak RSS %5.1f MiB   check takes %.2f of this time\n", c.name,
			float64(c.median().Microseconds())/1000, float64(c.rss)/1024, float64(check)/float64(c.median()))
	}
	if _, err := exec.LookPath("goss"); err != nil {
		fmt.Println("  goss               not installed: skipped")
	}
	return nil
}

func newContenders(ctx context.Context, dir, nodegate string) ([]*contender, error) {
	policy, script, goss := "", "set -e\n", "kernel-param:\n"
	var files []string
	for _, key := range sysctls {
		file := "/proc/sys/" + strings.ReplaceAll(key, ".", "/")
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		value := strings.Join(strings.Fields(string(b)), " ")
		files = append(files, file)
		policy += fmt.Sprintf("sysctl %q { value = %q }\n", key, value)
		script += fmt.Sprintf("test \"$(sysctl -n %s | tr '\\t' ' ')\" = %q\n", key, value)
		goss += fmt.Sprintf("  %s:\n    value: %q\n", key, strings.TrimSpace(string(b)))
	}
	policy += "link \"lo\" {\n  match { name = \"lo\" }\n  offload = { tx-checksum-ip-generic = true }\n}\n"
	script += "ip -o link show dev lo >/dev/null\nethtool -k lo | grep -q 'tx-checksum-ip-generic: on'\n"
	goss += "interface:\n  lo:\n    exists: true\n"
	for name, content := range map[string]string{"p.hcl": policy, "check.sh": script, "goss.yaml": goss} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return nil, err
		}
	}
	floor := filepath.Join(dir, "floor")
	if out, err := exec.CommandContext(ctx, "go", "build", "-ldflags", "-s -w", "-o", floor, floorPackage).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building the floor: %w\n%s", err, out)
	}
	all := []*contender{
		{name: "nodegate check", argv: []string{nodegate, "check", "--policy", filepath.Join(dir, "p.hcl")}},
		{name: "nodegate version", argv: []string{nodegate, "version"}},
		{name: "floor (only reads)", argv: append([]string{floor}, files...)},
	}
	if hasAll("sysctl", "ethtool", "ip") {
		all = append(all, &contender{name: "shell script", argv: []string{"sh", filepath.Join(dir, "check.sh")}})
	} else {
		fmt.Println("the shell script needs sysctl, ethtool and ip: skipped")
	}
	if hasAll("goss") {
		all = append(all, &contender{name: "goss", argv: []string{"goss", "-g", filepath.Join(dir, "goss.yaml"), "validate"}})
	}
	return all, nil
}

func hasAll(programs ...string) bool {
	return !slices.ContainsFunc(programs, func(p string) bool { _, err := exec.LookPath(p); return err != nil })
}

// run runs the contender once. Only if counts is set it records the time and the memory.
func (c *contender) run(ctx context.Context, counts bool) error {
	cmd := exec.CommandContext(ctx, c.argv[0], c.argv[1:]...)
	began := time.Now()
	out, err := cmd.CombinedOutput()
	took := time.Since(began)
	if err != nil {
		return errors.Join(fmt.Errorf("%s: %w", c.name, err), errors.New(string(out)))
	}
	if counts {
		c.took = append(c.took, took)
		c.rss = max(c.rss, cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss)
	}
	return nil
}

func (c *contender) median() time.Duration {
	sorted := slices.Sorted(slices.Values(c.took))
	return sorted[len(sorted)/2]
}
