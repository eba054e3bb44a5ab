package host_test

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"nodegate/internal/assert"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

// TestProcesses queries the real kernel for this process, for others that are not root's or in another network namespace, and for
// the addresses on which this process listens.
func TestProcesses(t *testing.T) {
	hosttest.NeedRoot(t)
	h, err := host.Open("/")
	require.NoError(t, err)
	defer h.Close()
	long := make([]string, 10)
	for i := range long {
		long[i] = strings.Repeat("x", 100<<10)
	}
	want := map[int]int{os.Getpid(): len(strings.Join(os.Args, " "))} // PID -> bytes of the command line
	for _, c := range []struct {
		args []string
		attr syscall.SysProcAttr
		want int
	}{
		{nil, syscall.SysProcAttr{}, len("sh -c read x")},
		{long, syscall.SysProcAttr{}, 64 << 10},
		{nil, syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}, 0},
		{nil, syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}, 0},
	} {
		cmd := exec.Command("sh", append([]string{"-c", "read x"}, c.args...)...)
		cmd.SysProcAttr = &c.attr
		stdin, err := cmd.StdinPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		defer func() {
			_ = stdin.Close()
			_ = cmd.Wait()
		}()
		want[cmd.Process.Pid] = c.want
	}
	list, err := h.Processes()
	require.NoError(t, err)
	for pid, bytes := range want {
		got := 0
		for _, p := range list {
			if p.PID == pid {
				got = len(strings.Join(p.Args, " "))
			}
		}
		assert.Equal(t, got, bytes, "bytes of the command line of process %d, this one is %d", pid, os.Getpid())
	}
	for _, at := range []string{"127.0.0.1:0", "[::1]:0", "[::]:0"} {
		l, err := net.Listen("tcp", at)
		if err != nil {
			continue // without IPv6
		}
		want := l.Addr().(*net.TCPAddr).AddrPort()
		got, err := h.Listening(os.Getpid())
		want = netip.AddrPortFrom(want.Addr().Unmap(), want.Port())
		assert.True(t, err == nil && slices.ContainsFunc(got, func(l host.Listener) bool { return l.AddrPort == want }),
			"%s is not in %v, %v", want, got, err)
		_ = l.Close()
	}
}

// TestProcessorTime: the processor time of this process counts, and that of its programs.
func TestProcessorTime(t *testing.T) {
	h, err := host.Open("/")
	require.NoError(t, err)
	defer h.Close()
	took := func(do func()) time.Duration {
		before := h.ProcessorTime()
		do()
		return h.ProcessorTime() - before
	}
	program := took(func() {
		require.NoError(t, exec.Command("sh", "-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done").Run())
	})
	assert.True(t, program > 0, "a busy program used %s", program)
	for before, end := h.ProcessorTime(), time.Now().Add(30*time.Second); h.ProcessorTime()-before < 10*time.Millisecond; {
		require.True(t, !time.Now().After(end), "30 s of busy work used less than 10 ms of processor time")
	}
}
