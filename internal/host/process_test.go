package host_test

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"nodegate/internal/host"
	"nodegate/internal/require"
)

// TestProcesses queries the real kernel for this process and for the addresses on which it listens.
func TestProcesses(t *testing.T) {
	h, err := host.Open("/")
	require.NoError(t, err)
	defer h.Close()
	list, err := h.Processes()
	require.NoError(t, err)
	i := slices.IndexFunc(list, func(p host.Process) bool { return p.PID == os.Getpid() })
	if i < 0 || !slices.Equal(list[i].Args, os.Args) {
		t.Fatalf("this process, %d %q, is not in %+v", os.Getpid(), os.Args, list)
	}
	for _, at := range []string{"127.0.0.1:0", "[::1]:0", "[::]:0"} {
		l, err := net.Listen("tcp", at)
		if err != nil {
			continue // without IPv6
		}
		want := l.Addr().(*net.TCPAddr).AddrPort()
		got, err := h.Listening(os.Getpid())
		if err != nil || !slices.Contains(got, netip.AddrPortFrom(want.Addr().Unmap(), want.Port())) {
			t.Errorf("%s is not in %v, %v", want, got, err)
		}
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
	if program <= 0 {
		t.Errorf("a busy program used %s", program)
	}
	for before, end := h.ProcessorTime(), time.Now().Add(30*time.Second); h.ProcessorTime()-before < 10*time.Millisecond; {
		if time.Now().After(end) {
			t.Fatal("30 s of busy work used less than 10 ms of processor time")
		}
	}
}
