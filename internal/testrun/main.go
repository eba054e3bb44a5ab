// Command testrun runs `go test` with its arguments for `make test`. First it looks for the programs
// that the tests run, and as root installs the missing ones. gotestsum prints the lines of `go test`; at
// the end comes a table of the tests that were skipped. If CI is set, a skipped test is a failure.
package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
)

//go:embed programs
var list string

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	programs := parsePrograms(list)
	inCI := os.Getenv("CI") != ""
	// An ordinary user's path often lacks these directories, and with them ip and nft.
	setVariable("PATH", os.Getenv("PATH")+":/usr/local/sbin:/usr/sbin:/sbin")
	if missing := missingPrograms(programs); len(missing) > 0 {
		prepare(ctx, missing, os.Geteuid() == 0, inCI)
	}
	setVariable("NODEGATE_TEST_MACHINE", describeMachine(programs))
	fmt.Println("Running go test; the first run compiles for a minute or two before its first test.")
	skips, err := runTests(ctx, os.Args[1:])
	writeSkipped(os.Stdout, skips, programs)
	switch {
	case errors.As(err, new(*exec.ExitError)): // gotestsum has printed why
		os.Exit(1)
	case err != nil:
		fmt.Fprintln(os.Stderr, "testrun:", err)
		os.Exit(1)
	case inCI && len(skips) > 0:
		fmt.Fprintln(os.Stderr, "CI is set, and tests were skipped")
		os.Exit(1)
	}
}

func setVariable(name, value string) {
	if err := os.Setenv(name, value); err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
		os.Exit(1)
	}
}

// describeMachine returns what decides whether a test is skipped: the missing programs, the user, the capabilities, the
// namespaces and the devices. hosttest reads it, so that go test caches no result of another machine.
func describeMachine(programs []program) string {
	words := append(names(missingPrograms(programs)), strconv.Itoa(os.Geteuid()))
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, "CapEff:") {
			words = append(words, strings.Fields(line)...)
		}
	}
	for _, name := range []string{"user", "pid"} {
		space, _ := os.Readlink("/proc/self/ns/" + name)
		words = append(words, space)
	}
	for _, file := range []string{"/dev/fuse", "/dev/net/tun", "/proc/sys/net/bridge"} {
		_, err := os.Stat(file)
		words = append(words, fmt.Sprint(err == nil))
	}
	return strings.Join(words, " ")
}

// prepare installs the missing programs as root, or prints them.
func prepare(ctx context.Context, missing []program, root, inCI bool) {
	if !root {
		fmt.Printf("Missing programs: %s. The tests that run them are skipped; `make test` as root installs them.\n",
			strings.Join(names(missing), " "))
		return
	}
	m, ok := findManager()
	if !ok {
		fmt.Printf("Missing programs: %s. The tests that run them are skipped: neither apt-get nor dnf is installed.\n",
			strings.Join(names(missing), " "))
		return
	}
	packages := m.packages(missing, inCI)
	if len(packages) == 0 {
		return
	}
	fmt.Printf("Installing the programs that the tests run, with %s: %s\n", m.name, strings.Join(packages, " "))
	m.install(ctx, packages)
}

// gotestsum prints the lines of go test, repeats the failures at the end, and keeps go test's events in a file.
const gotestsum = "gotest.tools/gotestsum@v1.13.0"

// runTests runs go test and returns the skipped tests. In a PID namespace that was made without a /proc of its own
// (`unshare --pid`), it mounts one for the tests: /proc/self/task of another namespace does not have their threads.
func runTests(ctx context.Context, args []string) ([]skip, error) {
	events, err := os.CreateTemp("", "nodegate-testrun-")
	if err != nil {
		return nil, err
	}
	defer func() { _, _ = events.Close(), os.Remove(events.Name()) }()
	command := append([]string{"go", "run", gotestsum, "--format=standard-quiet", "--hide-summary=skipped",
		"--jsonfile=" + events.Name(), "--", "-timeout", "60m"}, args...)
	own, err := os.Readlink("/proc/self")
	foreign := err == nil && own != strconv.Itoa(os.Getpid())
	if foreign && os.Geteuid() != 0 {
		fmt.Println("/proc belongs to another PID namespace, and tests fail: use `unshare --pid --fork --mount-proc`.")
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	if foreign && os.Geteuid() == 0 {
		cmd = exec.CommandContext(ctx, "sh", append([]string{"-c", `mount -t proc proc /proc && exec "$@"`, "sh"}, command...)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	failed := cmd.Run()
	skips, err := skippedTests(events)
	if failed != nil {
		err = failed
	}
	return skips, err
}
