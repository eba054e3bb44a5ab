package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"nodegate/internal/assert"
	"nodegate/internal/require"
)

// TestImageSignals: a signal ends the tested machine, and removes its temporary files.
func TestImageSignals(t *testing.T) {
	for s, code := range map[os.Signal]int{os.Interrupt: 130, syscall.SIGTERM: 143} {
		dir, tmp := t.TempDir(), t.TempDir()
		for name, text := range map[string]string{
			"image": "QFI\xfb", "with.hcl": "", "qemu-system-x86_64": "#!/bin/sh\necho $$ >" + dir + "/new && mv " + dir + "/new " + dir +
				"/pid\nexec sleep 600\n",
		} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700))
		}
		cmd := exec.Command("nodegate", "image", "test", dir+"/image", "--with", dir+"/with.hcl")
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "TMPDIR="+tmp)
		require.NoError(t, cmd.Start())
		var machine int
		for range 600 {
			text, _ := os.ReadFile(dir + "/pid")
			if machine, _ = strconv.Atoi(strings.TrimSpace(string(text))); machine != 0 {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		if machine == 0 {
			t.Error("no machine was started")
		}
		_ = cmd.Process.Signal(s)
		_ = cmd.Wait()
		assert.Equal(t, cmd.ProcessState.ExitCode(), code, "%v: exit status", s)
		if err := syscall.Kill(machine, 0); err == nil {
			t.Errorf("%v: the machine still runs", s)
			_ = syscall.Kill(machine, syscall.SIGKILL)
		}
		if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
			t.Errorf("%v: left behind: %v, %v", s, left, err)
		}
	}
}

// TestImageSignalsAtOnce: a signal is handled even if it arrives at the machine's first step.
func TestImageSignalsAtOnce(t *testing.T) {
	dir, tmp := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		"image": "QFI\xfb", "with.hcl": "", "qemu-system-x86_64": "#!/bin/sh\nkill -TERM $PPID\nexec sleep 600\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700))
	}
	cmd := exec.Command("nodegate", "image", "test", dir+"/image", "--with", dir+"/with.hcl")
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "TMPDIR="+tmp)
	out, err := cmd.CombinedOutput()
	if left, readErr := os.ReadDir(tmp); cmd.ProcessState.ExitCode() != 143 || readErr != nil || len(left) > 0 {
		t.Errorf("%v, left behind: %v, %v\n%s", err, left, readErr, out)
	}
}
