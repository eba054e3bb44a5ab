package host_test

import (
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"

	"nodegate/internal/host"
)

// TestProcesses asks the real kernel for this process, and for what it listens on.
func TestProcesses(t *testing.T) {
	h, err := host.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	list, err := h.Processes()
	if err != nil {
		t.Fatal(err)
	}
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
