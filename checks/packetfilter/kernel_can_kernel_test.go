package packetfilter_test

import (
	"os"
	"testing"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/assert"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
	"nodegate/internal/verdict"
)

// TestKernelCanKernel checks that this kernel accepts the rules of a real kube-proxy in both modes and rejects an invalid rule.
func TestKernelCanKernel(t *testing.T) {
	hosttest.NeedRoot(t)
	for _, program := range []string{"iptables-restore", "ip6tables-restore", "nft"} {
		hosttest.NeedProgram(t, program)
	}
	h, err := host.Open("/")
	require.NoError(t, err)
	defer h.Close()
	texts := []string{"*nat\n:A - [0:0]\n-A A -m mark --mark 1\nCOMMIT\n", "*nat\n:A - [0:0]\n-A A -m nonesuch\nCOMMIT\n"}
	rejected, err := h.Rules.Takes(t.Context(), "iptables-restore", texts[0]+texts[1], texts)
	assert.True(t, err == nil && rejected[0] == "" && rejected[1] != "", "one right and one wrong rule: %q, %v", rejected, err)
	for _, mode := range []string{"iptables", "nftables"} {
		machine := checkstest.Node(map[string]string{
			"/var/lib/kube-proxy/config.conf": "kind: KubeProxyConfiguration\nmode: " + mode + "\n", "/proc/sys/net/ipv6": "",
		}, nil).Host()
		machine.Rules = h.Rules
		r := checkstest.On(t.Context(), t, machine, checks.Boot, "packetfilter.kernel-can", "")
		assert.True(t, r.Verdict == verdict.Pass, "%s: %s", mode, checkstest.Text(r))
	}
	if _, err := os.Stat("/proc/sys/net/ipv6"); err != nil {
		t.Log("this kernel does not support IPv6")
	}
}
