package netns_test

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"nodegate/internal/host/hosttest"
	"nodegate/internal/host/netns"
	"nodegate/internal/require"
)

// translating creates a namespace in which UDP to 198.51.100.10:53 goes to 198.51.100.2:5353. It
// sends one datagram from each of the given number of sockets, 20,000 per address, and one to an
// address that is not translated.
func translating(t testing.TB, n *netns.Namespace, ctx context.Context, sockets int) {
	t.Helper()
	hosttest.NeedProgram(t, "nft")
	err := n.Do(ctx, func() error {
		cmd := exec.CommandContext(ctx, "sh", "-ec", "ip addr add 198.51.100.1/24 dev lo; ip link set lo up; nft -f -")
		cmd.Stdin = strings.NewReader(`add table ip test
add chain ip test out { type nat hook output priority -100; }
add rule ip test out ip daddr 198.51.100.10 udp dport 53 dnat to 198.51.100.2:5353
`)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		for i := range sockets + 1 {
			to := &net.UDPAddr{IP: net.IPv4(198, 51, 100, 10), Port: 53}
			if i == sockets {
				to = &net.UDPAddr{IP: net.IPv4(198, 51, 100, 1), Port: 9}
			}
			c, err := net.DialUDP("udp", &net.UDPAddr{IP: net.IPv4(198, 51, 100, byte(100+i/20_000)), Port: 10_000 + i%20_000}, to)
			if err != nil {
				return err
			}
			_, _ = c.Write([]byte("x")) // fails, because no program listens
			_ = c.Close()
		}
		return nil
	})
	require.NoError(t, err)
}

// TestTranslated reads the kernel's table and expects only the translated flows.
func TestTranslated(t *testing.T) {
	n, ctx := scratch(t)
	translating(t, n, ctx, 3)
	flows, err := n.Translated(ctx)
	require.NoError(t, err)
	if len(flows) != 3 {
		t.Errorf("got %d flows, want 3: %+v", len(flows), flows)
	}
	for _, f := range flows {
		if f.Orig.To.String() != "198.51.100.10:53" || f.Reply.From.String() != "198.51.100.2:5353" || f.Timeout <= 0 || f.Timeout > time.Hour {
			t.Errorf("got %+v", f)
		}
	}
}
