package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

// TestSignals ends verbs that read a silent pipe, with each of the signals and with
// --timeout.
func TestSignals(t *testing.T) {
	for _, verb := range []string{"fmt", "lint --kops -", "report -", "audit --rules -", "lint /dev/stdin", "check --snapshot /dev/stdin"} {
		for what, c := range map[string]struct {
			signal os.Signal
			code   int
		}{
			"interrupt": {os.Interrupt, 128 + int(syscall.SIGINT)}, "terminate": {syscall.SIGTERM, 128 + int(syscall.SIGTERM)},
			"timeout": {nil, exitUnknown},
		} {
			words := strings.Fields(verb)
			if takes := words[0] == "audit" || words[0] == "check"; c.signal == nil && !takes {
				continue
			} else if c.signal == nil {
				words = append(words, "--timeout", "100ms")
			}
			t.Run(what+" "+verb, func(t *testing.T) {
				t.Parallel()
				ended(t, exec.Command("nodegate", words...), c.signal, c.code)
			})
		}
	}
}

// ended starts a command with a silent standard input, sends it a signal, and checks that
// it ends with the code. The time limit is generous: a command with the fault never ends.
func ended(t *testing.T, c *exec.Cmd, s os.Signal, code int) {
	stdin, err := c.StdinPipe()
	require.NoError(t, err)
	defer stdin.Close()
	require.NoError(t, c.Start())
	done := make(chan error, 1)
	go func() { done <- c.Wait() }()
	resend := time.NewTicker(200 * time.Millisecond) // the first signal may arrive before the program handles it
	defer resend.Stop()
	limit := time.After(time.Minute)
	for {
		select {
		case err := <-done:
			var exit *exec.ExitError
			if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signaled() {
				return // the signal arrived before the program started
			}
			assert.True(t, exit != nil && exit.ExitCode() == code, "ended with %v, want exit status %d", err, code)
			return
		case <-resend.C:
			if s != nil {
				_ = c.Process.Signal(s)
			}
		case <-limit:
			_ = c.Process.Kill()
			t.Fatal("the command did not end")
		}
	}
}

// TestInterrupted: a live audit, a probe and a check that the operator ends have no verdict.
func TestInterrupted(t *testing.T) {
	hosttest.NeedRoot(t)
	hosttest.NeedProgram(t, "unshare")
	hosttest.NeedProgram(t, "ip")
	for _, verb := range []string{"probe service 192.0.2.1:80 -n 2000 --attempt-timeout 30s", "audit --kubeconfig config --timeout 10m",
		"check --policy slow.hcl"} {
		t.Run(verb, func(t *testing.T) {
			c := exec.Command("unshare", append([]string{"--net", "sh", "-c", `ip link set lo up; ip route add 192.0.2.0/24 dev lo
				ip addr add 192.0.2.9/32 dev lo; exec nodegate "$@"`, "sh"}, strings.Fields(verb)...)...)
			c.Dir = t.TempDir()
			silent := "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n" +
				"clusters: [{name: c, cluster: {server: \"https://192.0.2.1:80\", insecure-skip-tls-verify: true}}]\n" +
				"users: [{name: u, user: {token: t}}]\n"
			require.NoError(t, os.WriteFile(filepath.Join(c.Dir, "config"), []byte(silent), 0o600))
			slow := `check "exec.slow" { command = ["/bin/sleep", "60"] }` + "\n"
			require.NoError(t, os.WriteFile(filepath.Join(c.Dir, "slow.hcl"), []byte(slow), 0o600))
			var out strings.Builder
			c.Stdout, c.Stderr = &out, &out
			ended(t, c, os.Interrupt, 128+int(syscall.SIGINT))
			if out.Len() == 0 {
				return // the signal arrived before the program started
			}
			assert.True(t, !strings.Contains(out.String(), "unknown") && strings.Contains(out.String(), "nodegate: interrupted: "),
				"printed:\n%s", out.String())
		})
	}
}
