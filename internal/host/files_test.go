package host_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
)

const conntrackStat = "/proc/net/stat/nf_conntrack"

// countersRead prints the counters of conntrack as checks read them; 2: there are none.
func countersRead() int {
	h, err := host.Open("/")
	if err != nil {
		return 1
	}
	text, err := h.Text(conntrackStat)
	fmt.Println(text, err)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 2
	case err != nil:
		return 1
	}
	return 0
}

// TestConntrackWithoutItsFile: a kernel without CONFIG_NF_CONNTRACK_PROCFS tells its counters all the same, and one without
// nf_conntrack is not asked.
func TestConntrackWithoutItsFile(t *testing.T) {
	hosttest.NeedRoot(t)
	_, err := os.Stat("/proc/sys/net/netfilter/nf_conntrack_count")
	hosttest.Need(t, err == nil, "nf_conntrack in the kernel: modprobe nf_conntrack")
	for parameter, want := range map[string]int{"nf_conntrack_count": 0, "another": 2} {
		const script = `mount -t tmpfs none /proc && mkdir -p /proc/sys/net/netfilter && : >"/proc/sys/net/netfilter/$1" && exec "$2"`
		cmd := exec.Command("sh", "-c", script, "sh", parameter, os.Args[0])
		cmd.Env = append(os.Environ(), outletsVariable+"=conntrack")
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		out, _ := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != want || want == 0 && !strings.Contains(string(out), "insert_failed drop early_drop") {
			t.Errorf("with %s: exit code %d, want %d: %s", parameter, got, want, out)
		}
	}
}
