package vm

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"nodegate/internal/assert"
	"nodegate/internal/e2e/qemu"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

func TestScratchSweepsTheDeadOnly(t *testing.T) {
	cache := Cache{t.TempDir()}
	dead := filepath.Join(cache.Dir, "run-dead")
	require.NoError(t, os.MkdirAll(filepath.Join(dead, "tree"), 0o755))
	first, err := cache.Scratch()
	require.NoError(t, err)
	second, err := cache.Scratch()
	require.NoError(t, err)
	_, err = os.Stat(dead)
	assert.True(t, os.IsNotExist(err), "the directory of the dead run: %v", err)
	for _, s := range []*Scratch{first, second} {
		_, err = os.Stat(s.Dir)
		assert.NoError(t, err, "the directory of a living run")
		assert.NoError(t, s.Close())
		_, err = os.Stat(s.Dir)
		assert.True(t, os.IsNotExist(err), "the directory of a closed run: %v", err)
	}
}

// TestTreeInUse: two runs with different inputs, such as two branches, share a cache.
func TestTreeInUse(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "base-1")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "boot"), 0o755))
	for _, name := range []string{"vmlinuz-1", "initrd.img-1"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "boot", name), nil, 0o644))
	}
	b, err := openBase(dir, amd64())
	require.NoError(t, err)
	for _, used := range []bool{true, false} {
		require.NoError(t, removeUnused(dir))
		_, err = os.Stat(dir)
		assert.True(t, (err == nil) == used, "used %v: %v", used, err)
		b.used.Close()
	}
}

// needNamespaces skips tests that need namespaces if they cannot be created.
func needNamespaces(t *testing.T) {
	t.Helper()
	_, err := runProgram(t.Context(), time.Minute, nil, "true")
	hosttest.Need(t, !errors.Is(err, syscall.EPERM), "root, and the right to create namespaces")
	require.NoError(t, err)
}

// TestChildrenDieWithTheTest kills a process that has started a child in the way of QEMU, and checks that the child is gone.
func TestChildrenDieWithTheTest(t *testing.T) {
	if os.Getenv("VM_TEST_PARENT") != "" {
		cmd := exec.Command("sleep", "600")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		_, err := qemu.Start(cmd, nil)
		require.NoError(t, err)
		fmt.Println("child", cmd.Process.Pid)
		select {}
	}
	parent := exec.Command(os.Args[0], "-test.run=^TestChildrenDieWithTheTest$", "-test.timeout=60s")
	parent.Env = append(os.Environ(), "VM_TEST_PARENT=1")
	stdout, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	child := 0
	for lines := bufio.NewScanner(stdout); child == 0 && lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "child "); ok {
			child, err = strconv.Atoi(text)
		}
	}
	_ = parent.Process.Kill()
	_ = parent.Wait()
	require.True(t, child != 0 && err == nil, "child %d: %v", child, err)
	stat := filepath.Join("/proc", strconv.Itoa(child), "stat")
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		text, err := os.ReadFile(stat)
		if os.IsNotExist(err) || strings.Contains(string(text), ") Z ") {
			return
		}
		if time.Now().After(deadline) {
			_ = syscall.Kill(child, syscall.SIGKILL)
			t.Fatal("the child outlived its parent")
		}
	}
}

func TestRemoveTreeSparesWhatIsMounted(t *testing.T) {
	needNamespaces(t)
	dir := t.TempDir()
	mounted := filepath.Join(dir, "tree", "proc")
	require.NoError(t, os.MkdirAll(mounted, 0o755))
	require.NoError(t, syscall.Mount("none", mounted, "tmpfs", 0, ""))
	assert.ErrorContains(t, removeTree(filepath.Join(dir, "tree")), "umount")
	require.NoError(t, syscall.Unmount(mounted, 0))
	assert.NoError(t, removeTree(filepath.Join(dir, "tree")))
}

func TestRunLeavesNoMounts(t *testing.T) {
	needNamespaces(t)
	dir := t.TempDir()
	_, err := runProgram(t.Context(), time.Minute, nil, "mount", "-t", "tmpfs", "none", dir)
	require.NoError(t, err)
	mounts := require.ReadFile(t, "/proc/self/mounts")
	assert.True(t, !strings.Contains(string(mounts), dir), "the mount outlived the program")
}
