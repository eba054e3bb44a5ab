package datapath

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/host/netns"
)

// TestMain lets the test binary act as the program under test: its first argument selects the role.
func TestMain(m *testing.M) {
	if len(os.Args) < 2 {
		os.Exit(m.Run())
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	switch os.Args[1] {
	case "as-child":
		exit(nil)
	case "as-failure":
		exit(errors.New("no such command"))
	case "as-sleeper":
		<-ctx.Done()
		exit(ctx.Err())
	case "as-service": // prints the summary
		r, err := Service(ctx, "127.0.0.1:9", ServiceOptions{N: 3})
		fmt.Println(r.Summary())
		exit(err)
	case "as-parent":
		_, err := netns.RunInUserNamespace(ctx, []string{"as-child"}, nil)
		exit(err)
	case "as-host":
		var o BridgeOptions
		if err := json.NewDecoder(os.Stdin).Decode(&o); err != nil {
			exit(err)
		}
		r, err := Bridge(ctx, o)
		if err != nil {
			exit(err)
		}
		exit(json.NewEncoder(os.Stdout).Encode(r))
	case "as-forbidden": // root of a user namespace that allows no further ones
		if err := os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0); err != nil {
			exit(err)
		}
		cmd := exec.Command("/proc/self/exe", "as-parent")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		exit(cmd.Run())
	}
	os.Exit(m.Run())
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// copySelf copies the test binary to a directory where every user may run it.
func copySelf(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "datapath")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	from, err := os.Open("/proc/self/exe")
	must(t, err)
	defer from.Close()
	to, err := os.OpenFile(filepath.Join(dir, "probe"), os.O_CREATE|os.O_WRONLY, 0o755)
	must(t, err)
	_, err = io.Copy(to, from)
	must(t, errors.Join(err, to.Close()))
	return to.Name()
}

// startProbe starts the program with the options as its input.
func startProbe(t *testing.T, program, as string, o BridgeOptions, attr *syscall.SysProcAttr) (*exec.Cmd, *bytes.Buffer, *bytes.Buffer) {
	t.Helper()
	input, err := json.Marshal(o)
	must(t, err)
	cmd := exec.CommandContext(deadline(t), program, as)
	cmd.SysProcAttr = attr
	var out, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &out, &stderr
	must(t, cmd.Start())
	return cmd, &out, &stderr
}

func asNobody() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
}

func TestOrdinaryUser(t *testing.T) {
	needRoot(t) // to run as nobody
	b, err := os.ReadFile("/proc/sys/kernel/unprivileged_userns_clone")
	hosttest.Need(t, err != nil || strings.TrimSpace(string(b)) == "1", "kernel.unprivileged_userns_clone=1")
	cmd, _, stderr := startProbe(t, copySelf(t), "as-parent", BridgeOptions{}, asNobody())
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
}

// TestChild tests a child that fails, and one that does not end.
func TestChild(t *testing.T) {
	needRoot(t) // ordinary users may be forbidden to make user namespaces
	for as, want := range map[string]string{
		"as-failure": "running as-failure in a user namespace: exit status 1: no such command",
		"as-sleeper": context.DeadlineExceeded.Error(),
	} {
		ctx, cancel := context.WithTimeout(deadline(t), 500*time.Millisecond)
		if as != "as-sleeper" {
			ctx = deadline(t)
		}
		_, err := netns.RunInUserNamespace(ctx, []string{as}, nil)
		cancel()
		assert.ErrorContains(t, err, want, "%s", as)
	}
}

// TestNoPrivilege checks that the error names the missing privilege.
func TestNoPrivilege(t *testing.T) {
	needRoot(t) // to drop root
	program := copySelf(t)
	inside := &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{Size: 65536}},
		GidMappings: []syscall.SysProcIDMap{{Size: 65536}},

		GidMappingsEnableSetgroups: true,
	}
	for _, c := range []struct {
		as, want string
		attr     *syscall.SysProcAttr
	}{
		{"as-host", "operation not permitted", asNobody()},
		{"as-forbidden", "creating a user namespace is forbidden here (user.max_user_namespaces", inside},
	} {
		cmd, out, stderr := startProbe(t, program, c.as, BridgeOptions{}, c.attr)
		if err := cmd.Wait(); err == nil || !strings.Contains(stderr.String(), c.want) || strings.Contains(stderr.String(), "panic") {
			t.Errorf("%s: %v: %s%s", c.as, err, out, stderr)
		}
	}
}

// TestServiceWithoutConntrack: connecting needs no privilege, but conntrack does. Endpoints are then unknown.
func TestServiceWithoutConntrack(t *testing.T) {
	needRoot(t) // to drop root
	cmd, out, stderr := startProbe(t, copySelf(t), "as-service", BridgeOptions{}, asNobody())
	if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), "3 of 3 failed") ||
		!strings.Contains(out.String(), "sent to unknown endpoints: looking up a flow in conntrack needs CAP_NET_ADMIN") {
		t.Errorf("%v: %s%s", err, out, stderr)
	}
}

// TestKilled checks that a killed probe leaves nothing.
func TestKilled(t *testing.T) {
	program := copySelf(t)
	n := newNetns(t) // ip_forward is 0: the probe waits for its timeout
	for range 5 {
		var cmd *exec.Cmd
		must(t, n.Do(deadline(t), func() error {
			cmd, _, _ = startProbe(t, program, "as-host", BridgeOptions{Timeout: 20 * time.Second}, nil)
			return nil
		}))
		await(t, "the probe's namespaces", func() bool {
			threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/ns/net", cmd.Process.Pid))
			spaces := map[string]bool{}
			for _, thread := range threads {
				space, _ := os.Readlink(thread)
				spaces[space] = true
			}
			return len(spaces) > 3
		})
		checkEmpty(t, n)
		must(t, cmd.Process.Kill())
		_ = cmd.Wait()
		checkEmpty(t, n)
	}
}
