package proxy_test

import (
	"fmt"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/audit/proxy"
	"nodegate/internal/require"
	"nodegate/internal/ruleset"
)

func TestHostPorts(t *testing.T) {
	set, err := ruleset.Parse("iptables-nft-save", strings.NewReader("*nat\n:CNI-HOSTPORT-DNAT - [0:0]\n:CNI-DN-1 - [0:0]\n:CNI-DN-2 - [0:0]\n"+
		"-A CNI-DN-1 -s 10.244.0.0/24 -p tcp -m tcp --dport 80 -j CNI-HOSTPORT-SETMARK\n"+
		"-A CNI-DN-1 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.244.0.5:8080\n"+
		"-A CNI-DN-2 -d 192.0.2.1/32 -p udp -m udp --dport 53 -j DNAT --to-destination 10.244.0.9:53\nCOMMIT\n"))
	require.NoError(t, err)
	rep := proxy.Judge([]*ruleset.Set{set}, proxy.Options{})
	assert.Equal(t, fmt.Sprint(rep.HostPorts), "[{6 0.0.0.0:80 10.244.0.5:8080} {17 192.0.2.1:53 10.244.0.9:53}]")
}
