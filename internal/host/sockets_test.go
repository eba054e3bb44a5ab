package host

import (
	"net"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/require"
)

func TestPortIsFree(t *testing.T) {
	h, err := Open("/")
	require.NoError(t, err)
	defer h.Close()
	for _, address := range []string{"127.0.0.1:0", "0.0.0.0:0", "[::1]:0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Logf("%s: %v", address, err) // a machine without IPv6
			continue
		}
		_, port, err := net.SplitHostPort(l.Addr().String())
		require.NoError(t, err)
		if h.PortIsFree(port) {
			t.Errorf("%s: reported as free while a program listens", l.Addr())
		}
		_ = l.Close()
		assert.True(t, h.PortIsFree(port), "%s: reported as not free after the listener closed", address)
	}
	assert.True(t, !h.PortIsFree("0") && !h.PortIsFree("x") && !h.PortIsFree("70000"), "an invalid port is reported as free")
}
