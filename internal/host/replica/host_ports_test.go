package replica_test

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"nodegate/internal/assert"
	"nodegate/internal/host/replica"
	"nodegate/internal/require"
)

// TestHostPorts reads files as libcni 1.3 writes them for containerd and CRI-O.
func TestHostPorts(t *testing.T) {
	dir := t.TempDir()
	result := func(name, plugins, link, mappings string) {
		text := fmt.Sprintf(`{"kind":"cniCacheV1","containerId":"a","config":%q,"ifName":"eth0","networkName":"cbr0",
			"cniArgs":[["K8S_POD_NAME","web"]],"capabilityArgs":{"dns":{},"portMappings":[%s]},"result":{"cniVersion":"1.0.0","dns":{},
			"interfaces":[{"name":"cni0"},{"name":%q},{"name":"eth0","sandbox":"/run/netns/a"}],
			"ips":[{"address":"10.244.0.5/24","interface":2},{"address":"fd00::5/64","interface":2}]}}`,
			base64.StdEncoding.EncodeToString([]byte(plugins)), mappings, link)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	const portmap = `{"plugins":[{"type":"bridge"},{"type":"portmap"}]}`
	mapping := func(port int) string {
		return fmt.Sprintf(`{"HostPort":%d,"ContainerPort":80,"Protocol":"tcp","HostIP":""}`, port)
	}
	result("cbr0-containerd-eth0", portmap, "veth1", mapping(8081)+`,{"HostPort":53,"ContainerPort":5353,"Protocol":"UDP","HostIP":"192.0.2.1"}`)
	result("cbr0-crio-eth0", portmap, "veth2", `{"hostPort":8082,"containerPort":80,"protocol":"TCP","hostIP":"::"},{"hostPort":0,"protocol":"tcp"},
		{"hostPort":9,"protocol":"sctp"}`)
	result("gone", portmap, "veth3", mapping(8083))
	result("cilium", `{"plugins":[{"type":"cilium-cni"}]}`, "veth1", mapping(8084))
	result("some", `{"plugins":[{"type":"portmap","conditionsV4":["-s","192.0.2.0/24"]}]}`, "veth1", mapping(8085))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "broken"), []byte(`{"result":{"ips":[{"address":"x"}]}}`), 0o600))
	c := replica.Capture{Links: []replica.Link{{Name: "cni0", Kind: "bridge"}, {Name: "veth1", Kind: "veth"}, {Name: "veth2", Kind: "veth"}}}
	got := ""
	for _, p := range c.HostPorts(dir) {
		got += fmt.Sprintln(p.Protocol == unix.IPPROTO_UDP, p.At, p.To)
	}
	assert.Diff(t, got, `false 0.0.0.0:8081 10.244.0.5:80
false 0.0.0.0:8081 [fd00::5]:80
true 192.0.2.1:53 10.244.0.5:5353
false [::]:8082 10.244.0.5:80
false [::]:8082 [fd00::5]:80
`)
	assert.Equal(t, len(c.HostPorts(filepath.Join(dir, "none"))), 0)
}
