package revert_test

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/checks/checkstest"
	"nodegate/cmd/nodegate/internal/report"
	"nodegate/cmd/nodegate/internal/revert"
	"nodegate/internal/assert"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

// TestRecord: for a sysctl that a module provides, the record has the value after loading the module, and the written value, not the
// required one.
func TestRecord(t *testing.T) {
	m := &hosttest.Machine{Files: map[string]string{}, Modules: map[string]map[string]string{
		"nf_conntrack": {"net/netfilter/nf_conntrack_max": "1024"},
	}}
	p := checkstest.Load(t, `
		module "nf_conntrack" {}
		sysctl "net.netfilter.nf_conntrack_max" { min = 131072 }`)
	var got []string
	checks.Apply(t.Context(), checkstest.WithModuleIndex(m), checks.Boot, catalog.For(p, checks.Boot), func(was checks.Result, made []checks.Change) {
		c := report.Made(was, made)
		got = append(got, fmt.Sprintf("%s: %s -> %s; wrote %s -> %s", c.Name, c.Was, c.Now, c.Writes[0].From, c.Writes[0].To))
	})
	checkstest.Equal(t, "records", `
module.nf_conntrack: not loaded -> loaded; wrote not loaded -> loaded
sysctl.net.netfilter.nf_conntrack_max: no such parameter -> 131072; wrote 1024 -> 131072`, strings.Join(got, "\n"))
}

// TestGlobOfModule: a glob for sysctls that only a module provides is planned before the module is loaded, and each write is recorded.
func TestGlobOfModule(t *testing.T) {
	m := &hosttest.Machine{Files: map[string]string{}, Modules: map[string]map[string]string{
		"br_netfilter": {"net/bridge/bridge-nf-call-iptables": "0", "net/bridge/bridge-nf-call-ip6tables": "0", "net/bridge/bridge-nf-call-arptables": "1"},
	}}
	h := checkstest.WithModuleIndex(m)
	list := catalog.For(checkstest.Load(t, `
		sysctl "net.bridge.bridge-nf-call-*" { value = 1 }
		sysctl "net.bridge.nosuch-*" { value = 1 }`), checks.Boot)
	checkstest.Equal(t, "before", `
fail module.br_netfilter: want loaded, got not loaded
fail sysctl.net.bridge.bridge-nf-call-*: want 1, got no such parameter (because module.br_netfilter)
fail sysctl.net.bridge.nosuch-*: want 1, got no such parameter (because module.br_netfilter)
fail`, checkstest.Print(checks.Inspect(t.Context(), h, checks.Boot, list)))
	var got []string
	after := checks.Apply(t.Context(), h, checks.Boot, list, func(was checks.Result, made []checks.Change) {
		assert.True(t, was.Name != "sysctl.net.bridge.nosuch-*", "what was not written is recorded")
		for _, w := range report.Made(was, made).Writes {
			got = append(got, fmt.Sprintf("%s: %s %s -> %s", was.Name, w.Target, w.From, w.To))
		}
	})
	checkstest.Equal(t, "after", `
pass module.br_netfilter: not loaded -> loaded
pass sysctl.net.bridge.bridge-nf-call-*: no such parameter -> 1
skipped sysctl.net.bridge.nosuch-*: no parameter matches net.bridge.nosuch-* yet
pass`, checkstest.Print(after))
	checkstest.Equal(t, "records", `
module.br_netfilter: br_netfilter not loaded -> loaded
sysctl.net.bridge.bridge-nf-call-*: net/bridge/bridge-nf-call-ip6tables 0 -> 1
sysctl.net.bridge.bridge-nf-call-*: net/bridge/bridge-nf-call-iptables 0 -> 1`, strings.Join(got, "\n"))
}

// TestGlobOfModuleInPart: writes before a write that the kernel refuses are recorded, and that it was refused.
func TestGlobOfModuleInPart(t *testing.T) {
	m := &hosttest.Machine{Files: map[string]string{}, Modules: map[string]map[string]string{
		"br_netfilter": {"net/bridge/bridge-nf-call-arptables": "0", "net/bridge/bridge-nf-call-iptables": "0"},
	}}
	m.Refuse = map[string]error{"/proc/sys/net/bridge/bridge-nf-call-iptables": syscall.EROFS}
	list := catalog.For(checkstest.Load(t, `sysctl "net.bridge.bridge-nf-call-*" { value = 1 }`), checks.Boot)
	var got []report.Write
	checks.Apply(t.Context(), checkstest.WithModuleIndex(m), checks.Boot, list, func(was checks.Result, made []checks.Change) {
		got = append(got, report.Made(was, made).Writes...)
	})
	assert.True(t, len(got) == 4 && got[1].Target == "net/bridge/bridge-nf-call-arptables" && got[3].To == got[3].From, "recorded: %+v", got)
}

// TestRecordOfSeveral: each change of a requirement has its own line, which describes only that change.
func TestRecordOfSeveral(t *testing.T) {
	m := &hosttest.Machine{Files: map[string]string{}, Links: map[string]*hosttest.Link{"flannel.1": {Kind: "vxlan", MTU: 1500, Features: map[string]host.Feature{
		"tx-checksum-ip-generic": {Available: true, Requested: true, Active: true},
	}}}}
	m.Sysctl("net/ipv4/conf/flannel.1/rp_filter", "2")
	p := checkstest.Load(t, `link "vxlan" {
		match { kind = "vxlan" }
		offload = { tx-checksum-ip-generic = false }
		mtu     = 1450
		sysctl  = { "net.ipv4.conf.*.rp_filter" = 0 }
	}`)
	h := m.Host()
	var got []string
	var changes []report.AppliedChange
	r := checks.Apply(t.Context(), h, checks.Boot, catalog.For(p, checks.Boot), func(was checks.Result, made []checks.Change) {
		c := report.Made(was, made)
		got = append(got, fmt.Sprintf("%s: %s -> %s; %d", c.Name, c.Was, c.Now, len(c.Writes)))
		changes = slices.Insert(changes, 0, c)
	})
	checkstest.Equal(t, "records", `
link.vxlan: flannel.1 mtu: 1500 -> flannel.1 mtu: 1450; 1
link.vxlan: net.ipv4.conf.flannel/1.rp_filter: 2 -> net.ipv4.conf.flannel/1.rp_filter: 0; 1
link.vxlan: flannel.1 offload: tx-checksum-ip-generic=on -> flannel.1 offload: tx-checksum-ip-generic=off; 1`, strings.Join(got, "\n"))
	assert.True(t, r.Results[0].Fixed && len(r.Results[0].Made) == 3, "it is not known as recorded: %+v", r.Results[0])
	steps, err := revert.Steps(t.Context(), h, changes)
	require.NoError(t, err)
	got = nil
	for _, s := range steps {
		got = append(got, fmt.Sprintf("%s %s, %v", s, s.Was, s.Do(t.Context(), h)))
	}
	checkstest.Equal(t, "put back", `
flannel.1 tx-checksum-ip-generic on, <nil>
net.ipv4.conf.flannel/1.rp_filter 2, <nil>
flannel.1 mtu 1500, <nil>`, strings.Join(got, "\n"))
}

// TestRounded: the record has the value that the kernel stored, so revert does not attribute it to another program.
func TestRounded(t *testing.T) {
	const key = "net/core/rmem_max"
	m := &hosttest.Machine{Files: map[string]string{}, Clamp: map[string]string{"/proc/sys/" + key: "2304"}}
	m.Sysctl(key, "212992")
	var changes []report.AppliedChange
	list := catalog.For(checkstest.Load(t, `sysctl "net.core.rmem_max" { value = 1 }`), checks.Boot)
	checks.Apply(t.Context(), m.Host(), checks.Boot, list, func(was checks.Result, made []checks.Change) {
		changes = slices.Insert(changes, 0, report.Made(was, made))
	})
	m.Clamp = nil
	steps, err := revert.Steps(t.Context(), m.Host(), changes)
	require.True(t, err == nil && len(steps) == 1 && steps[0].State == revert.AsSet && changes[0].Now == "2304",
		"%+v, %v, record %+v", steps, err, changes)
	err = steps[0].Do(t.Context(), m.Host())
	assert.True(t, err == nil && strings.Contains(m.String(), key+" = 212992"), "%v\n%s", err, m)
}

// TestRefused: a write that the kernel refused is nothing to undo, whatever the value is later.
func TestRefused(t *testing.T) {
	const key = "net/core/rmem_max"
	m := &hosttest.Machine{Files: map[string]string{}, Refuse: map[string]error{"/proc/sys/" + key: syscall.EINVAL}}
	m.Sysctl(key, "212992")
	var changes []report.AppliedChange
	list := catalog.For(checkstest.Load(t, `sysctl "net.core.rmem_max" { value = 1 }`), checks.Boot)
	checks.Apply(t.Context(), m.Host(), checks.Boot, list, func(was checks.Result, made []checks.Change) {
		changes = slices.Insert(changes, 0, report.Made(was, made))
	})
	m.Sysctl(key, "300000")
	steps, err := revert.Steps(t.Context(), m.Host(), changes)
	assert.True(t, err == nil && len(changes) == 2 && len(steps) == 0, "%+v, %v, record %+v", steps, err, changes)
}

// TestGone: a setting whose link or module is gone needs no undo, and an unknown kind of change is an error.
func TestGone(t *testing.T) {
	h := (&hosttest.Machine{Files: map[string]string{}, Links: map[string]*hosttest.Link{}}).Host()
	for _, w := range []report.Write{
		{Kind: checks.SetSysctl, Target: "net/ipv4/conf/eth9/rp_filter", From: "2", To: "0"},
		{Kind: "mtu", Target: "eth9", From: "1500", To: "1450"},
		{Kind: checks.SetFeatures, Target: "eth9", From: "rx-gro=on", To: "rx-gro=off"},
	} {
		steps, err := revert.Steps(t.Context(), h, []report.AppliedChange{{Writes: []report.Write{w}}})
		assert.True(t, err == nil && len(steps) == 1 && steps[0].State == revert.Back, "%s %s: %+v, %v", w.Kind, w.Target, steps, err)
	}
	_, err := revert.Steps(t.Context(), h, []report.AppliedChange{{Writes: []report.Write{{Kind: "later", Target: "x", To: "1"}}}})
	assert.ErrorContains(t, err, "another version of nodegate wrote it", "an unknown kind of change")
}
