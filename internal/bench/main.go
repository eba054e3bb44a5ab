// Command bench measures `nodegate check` of twelve sysctls and an interface, with other builds beside it. All of them run in turns, so
// that other load on the machine does not distort the ratios.
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

const rounds = 100

// contender is one program that is measured.
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
	all, err := newContenders(dir, nodegate)
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
	return nil
}

func newContenders(dir, nodegate string) ([]*contender, error) {
	policy := "link \"lo\" {\n  match { name = \"lo\" }\n  offload = { tx-checksum-ip-generic = true }\n}\n"
	for _, key := range sysctls {
		b, err := os.ReadFile("/proc/sys/" + strings.ReplaceAll(key, ".", "/"))
		if err != nil {
			return nil, err
		}
		policy += fmt.Sprintf("sysctl %q { value = %q }\n", key, strings.Join(strings.Fields(string(b)), " "))
	}
	file := filepath.Join(dir, "p.hcl")
	return []*contender{
		{name: "nodegate check", argv: []string{nodegate, "check", "--policy", file}},
		{name: "nodegate version", argv: []string{nodegate, "version"}},
	}, os.WriteFile(file, []byte(policy), 0o644)
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
