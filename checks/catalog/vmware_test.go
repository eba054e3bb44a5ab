package catalog_test

import (
	"strings"
	"testing"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/checks/checkstest"
	"nodegate/internal/assert"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
)

// TestVMware: the policy turns off what its check finds, and nothing of another driver.
func TestVMware(t *testing.T) {
	card := func(driver string) *hosttest.Link {
		return &hosttest.Link{MTU: 1500, Driver: driver, Features: map[string]host.Feature{
			"tx-udp_tnl-segmentation":      {Available: true, Requested: true, Active: true},
			"tx-udp_tnl-csum-segmentation": {Available: true, Requested: true, Active: true},
		}}
	}
	m := &hosttest.Machine{Links: map[string]*hosttest.Link{
		"ens192": card("vmxnet3"), "ens224": card("mlx5_core"),
		"flannel.1": {Kind: "vxlan", MTU: 1450, VXLAN: &host.VXLAN{Port: 8472, Parent: "ens192"}},
	}}
	list := catalog.For(checkstest.Load(t, `use "vmware" {}`), checks.Run)
	checkstest.Equal(t, "before", `
fail link.vmxnet3: want tx-udp_tnl-csum-segmentation=off tx-udp_tnl-segmentation=off, got ens192: tx-udp_tnl-csum-segmentation=on, ens192: tx-udp_tnl-segmentation=on
warn vmxnet3.tunnel-offload: want no tunnel offload on vmxnet3, got ens192 offloads packets of flannel.1
fail`, checkstest.Print(checks.Inspect(t.Context(), m.Host(), checks.Run, list)))
	got := checkstest.Print(checks.Apply(t.Context(), m.Host(), checks.Run, list, nil))
	if !strings.HasPrefix(got, "pass link.vmxnet3") || !strings.Contains(got, "pass vmxnet3.tunnel-offload") {
		t.Error(got)
	}
	assert.True(t, !strings.Contains(strings.Join(m.Log, " "), "ens224"), "another driver's link was changed: %q", m.Log)
}
