package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

// TestReaderGone: gate, apply and watch decide the same whether or not their output has a reader. SECURITY.md: gate.
func TestReaderGone(t *testing.T) {
	t.Parallel()
	hosttest.NeedRoot(t)
	hosttest.NeedProgram(t, "unshare")
	dir := t.TempDir()
	for name, text := range map[string]string{
		"right.hcl": "sysctl \"kernel.ostype\" { value = \"Linux\" }\n",
		"wrong.hcl": "module \"nodegate_no_such\" {}\ngate { budget = \"1s\" }\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	for _, verb := range []string{"gate", "apply"} {
		for policy, want := range map[string]int{"right.hcl": exitPass, "wrong.hcl": exitFail} {
			for _, gone := range []string{"1", "2", "1 and 2"} {
				for _, before := range []string{"", "trap '' PIPE; "} {
					c := withoutReader(t, gone, before+"exec nodegate "+verb+" --policy "+filepath.Join(dir, policy))
					var left bytes.Buffer
					if c.Stdout == nil {
						c.Stdout = &left
					}
					if c.Stderr == nil {
						c.Stderr = &left
					}
					err := c.Run()
					if c.ProcessState == nil || c.ProcessState.ExitCode() != want {
						t.Errorf("%s %s without a reader of %s (%s): %v, want %d\n%s", verb, policy, gone, before, err, want, left.Bytes())
					}
					if lost := "lost messages: "; verb == "gate" && policy == "right.hcl" && gone == "1" && strings.Contains(left.String(), lost) {
						t.Errorf("gate lost something: %s", left.Bytes())
					}
				}
			}
		}
	}
	for _, gone := range []string{"1", "2", "1 and 2"} {
		for _, before := range []string{"", "trap '' PIPE; "} {
			if err := outlives(t, withoutReader(t, gone, before+"exec nodegate watch --interval 1s --textfile "+dir+
				" --policy "+filepath.Join(dir, "wrong.hcl")), filepath.Join(dir, "nodegate.prom")); err != nil {
				t.Errorf("watch without a reader of %s (%s): %v", gone, before, err)
			}
		}
	}
}

// withoutReader returns a shell command in its own /run, whose standard output or error is a pipe without a reader.
func withoutReader(t *testing.T, gone, command string) *exec.Cmd {
	t.Helper()
	c := exec.Command("unshare", "--mount", "--pid", "--fork", "--kill-child=SIGKILL", "sh", "-c",
		"mount -t tmpfs tmpfs /run && [ ! -e /dev/console ] || mount --bind /dev/null /dev/console; "+command)
	r, w, err := os.Pipe()
	require.NoError(t, err)
	r.Close()
	t.Cleanup(func() { w.Close() })
	if strings.Contains(gone, "1") {
		c.Stdout = w
	}
	if strings.Contains(gone, "2") {
		c.Stderr = w
	}
	return c
}

// outlives runs watch until it has written its file twice, and returns an error if it ends earlier.
func outlives(t *testing.T, c *exec.Cmd, writes string) error {
	t.Helper()
	require.NoError(t, c.Start())
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	for range 2 {
		_ = os.Remove(writes)
		for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
			if _, err := os.Stat(writes); err == nil {
				break
			}
			select {
			case err := <-ended:
				return errors.Join(errors.New("ended early"), err)
			default:
			}
			if time.Now().After(end) {
				_ = c.Process.Signal(syscall.SIGKILL)
				return errors.New("wrote nothing in a minute")
			}
		}
	}
	_ = c.Process.Signal(syscall.SIGKILL)
	if err := <-ended; err != nil && !strings.Contains(err.Error(), "killed") {
		return err
	}
	return nil
}
