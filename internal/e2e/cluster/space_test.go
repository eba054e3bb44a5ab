package cluster

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"nodegate/internal/assert"
	"nodegate/internal/e2e/qemu"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

func TestSpace(t *testing.T) {
	hosttest.NeedRoot(t)
	hosttest.NeedProgram(t, "ip")
	s, err := NewSpace()
	require.NoError(t, err)
	t.Cleanup(s.Close)
	log := filepath.Join(t.TempDir(), "log")
	p, err := s.Start(log, nil, "sh", "-c", "echo I am $$; exec sleep 600")
	require.NoError(t, err)
	// A program sees only the processes and links of the Space.
	out, err := s.Output(t.Context(), "sh", "-euc", "ls /sys/class/net; ls -d /proc/[0-9]* | wc -l; ls /run")
	require.NoError(t, err)
	if fields := strings.Fields(out); len(fields) != 2 || fields[0] != "lo" || len(fields[1]) != 1 {
		t.Errorf("the program sees %q, want its own loopback, few processes and an empty /run", out)
	}
	if text, err := os.ReadFile(log); err != nil || !strings.HasPrefix(string(text), "I am ") {
		t.Errorf("the log: %q, %v", text, err)
	}
	assert.ErrorContains(t, s.Shell(t.Context(), "echo loud >&2; exit 3"), "loud", "a script that fails")
	s.Close()
	select {
	case <-p.Ended():
	case <-time.After(10 * time.Second):
		t.Error("a process outlived its Space")
	}
	_, err = s.Output(t.Context(), "true")
	assert.True(t, err != nil, "a closed Space ran a program")
}

func TestSpacesAreConnected(t *testing.T) {
	hosttest.NeedRoot(t)
	hosttest.NeedProgram(t, "ip")
	var spaces [2]*Space
	for i := range spaces {
		s, err := NewSpace()
		require.NoError(t, err)
		t.Cleanup(s.Close)
		spaces[i] = s
	}
	here, there := spaces[0], spaces[1]
	script := "ip link add nodes type bridge; ip address add 10.77.0.1/24 dev nodes; ip link set nodes up"
	require.NoError(t, here.Shell(t.Context(), script))
	require.NoError(t, here.Connect(there, "there", "nodes"))
	require.NoError(t, there.Shell(t.Context(), "ip address add 10.77.0.2/24 dev eth0; ip link set eth0 up"))
	var l net.Listener
	var err error
	done := make(chan struct{})
	go qemu.OnSpareThread(func() {
		defer close(done)
		if err = there.Enter(); err == nil {
			l, err = net.Listen("tcp", "10.77.0.2:80")
		}
	})
	<-done
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	conn, err := here.DialContext(t.Context(), "tcp", "10.77.0.2:80")
	require.NoError(t, err)
	_ = conn.Close()
}
