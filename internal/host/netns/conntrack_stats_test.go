package netns_test

import (
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/host/netns"
	"nodegate/internal/require"
)

// sumColumns returns the sum of each column of /proc/net/stat/nf_conntrack, and the number of CPUs.
func sumColumns(t *testing.T, text string) (map[string]uint64, int) {
	t.Helper()
	header, rest, _ := strings.Cut(strings.TrimSpace(text), "\n")
	sums := map[string]uint64{}
	cpus := 0
	for line := range strings.Lines(rest) {
		cpus++
		for i, f := range strings.Fields(line) {
			n, err := strconv.ParseUint(f, 16, 32)
			require.NoError(t, err)
			sums[strings.Fields(header)[i]] += n
		}
	}
	return sums, cpus
}

// TestConntrackStats: netlink and the file agree on the same kernel, for counters that are not 0.
func TestConntrackStats(t *testing.T) {
	n, ctx := scratch(t)
	translating(t, n, ctx, 3)
	var file, asked string
	err := n.Do(ctx, func() error {
		// A TCP header with invalid flags, and an ICMP error without a matching packet.
		broken := map[string][]byte{"ip4:tcp": append(make([]byte, 12), 0x50, 0x3f, 0, 0, 0, 0, 0, 0), "ip4:icmp": {3, 3, 0, 0, 0, 0, 0, 0}}
		for network, packet := range broken {
			c, err := net.Dial(network, "198.51.100.1")
			if err != nil {
				return err
			}
			for range 3 {
				_, _ = c.Write(packet)
			}
			_ = c.Close()
		}
		b, err := os.ReadFile("/proc/thread-self/net/stat/nf_conntrack")
		if err != nil {
			return err
		}
		stats, err := netns.ConntrackStats()
		file, asked = string(b), string(stats)
		return err
	})
	hosttest.Need(t, !os.IsNotExist(err), "a kernel with CONFIG_NF_CONNTRACK_PROCFS, to compare with")
	require.NoError(t, err)
	want, cpus := sumColumns(t, file)
	got, gotCPUs := sumColumns(t, asked)
	assert.Equal(t, gotCPUs, cpus)
	assert.True(t, got["invalid"] != 0 && got["icmp_error"] != 0, "the packets were not counted: %v", got)
	for _, name := range []string{"invalid", "insert_failed", "drop", "early_drop", "icmp_error"} {
		_, has := want[name]
		assert.True(t, has, "the file has no column %s: %v", name, want)
	}
	for name, sum := range got {
		if in, has := want[name]; has && in != sum { // the other columns depend on the kernel
			t.Errorf("%s: %d over netlink, %d in the file", name, sum, in)
		}
	}
}
