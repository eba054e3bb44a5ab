package report_test

import (
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/checks/checkstest"
	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/assert"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

// TestPlan: a plan separates the requirements that apply can fix from those that it cannot: a sysctl that the
// kernel does not have, a module that is not installed, and the sysctls that only that module provides.
func TestPlan(t *testing.T) {
	node := checkstest.Node(map[string]string{"/lib/modules/6.1.0/modules.dep": "kernel/net/ip_vs.ko:\n"},
		map[string]string{"net/ipv4/ip_forward": "0", "kernel/panic": "0"})
	node.Refuse = map[string]error{"r /proc/sys/kernel/panic": syscall.EIO}
	p := checkstest.Load(t, `
		module "ip_vs" {}
		sysctl "net.ipv4.vs.conntrack" { value = 1 }
		sysctl "net.bridge.bridge-nf-call-iptables" { value = 1 }
		sysctl "net.ipv4.ip_forward" { value = 1 }
		sysctl "net.ipv4.ip_forwrd" { value = 1 }
		sysctl "kernel.panic" { value = 10 }`)
	var b strings.Builder
	plan := report.NewPlan(checks.Inspect(t.Context(), node.Host(), checks.Boot, catalog.For(p, checks.Boot)))
	require.NoError(t, plan.Text(&b, report.Plain, nil))
	want := `  ~ module.ip_vs                               not loaded -> loaded
  ~ sysctl.net.ipv4.vs.conntrack               no such parameter -> 1 after module.ip_vs
  ~ sysctl.net.ipv4.ip_forward                 0 -> 1
apply cannot fix:
  ! module.br_netfilter                        not installed, wants loaded; kernel 6.1.0 has no br_netfilter: install the package that contains it (Red Hat: kernel-modules-extra; Debian, Ubuntu: linux-modules or linux-image without -unsigned or -virtual reductions)
  ! sysctl.net.bridge.bridge-nf-call-iptables  no such parameter, wants 1; because of module.br_netfilter
  ! sysctl.net.ipv4.ip_forwrd                  no such parameter, wants 1; check the spelling; this kernel has no /proc/sys/net/ipv4/ip_forwrd; did you mean "ip_forward"?
could not determine:
  ? sysctl.kernel.panic                        unknown: reading sysctl: open /proc/sys/kernel/panic: input/output error
` + "3 changes; run `nodegate apply` to make them; 3 to fix manually; 1 unknown\n"
	d := cmp.Diff(want, b.String())
	assert.True(t, d == "", "(-want +got)\n%s\n%s", d, b.String())
}

// TestPlanLeftOut: apply cannot set a sysctl of a module that the policy does not load.
func TestPlanLeftOut(t *testing.T) {
	node := checkstest.Node(map[string]string{"/lib/modules/6.1.0/modules.dep": "kernel/net/ip_vs.ko:\n"}, nil)
	p := checkstest.Load(t, `
		module "ip_vs" { when = false }
		sysctl "net.ipv4.vs.conntrack" { value = 1 }`)
	var b strings.Builder
	plan := report.NewPlan(checks.Inspect(t.Context(), node.Host(), checks.Boot, catalog.For(p, checks.Boot)))
	require.NoError(t, plan.Text(&b, report.Plain, nil))
	want := "apply cannot fix:\n  ! sysctl.net.ipv4.vs.conntrack  no such parameter, wants 1; run `modprobe ip_vs`\n" +
		"no change: 2 requirements checked; 1 to fix manually\n"
	d := cmp.Diff(want, b.String())
	assert.True(t, d == "", "(-want +got)\n%s\n%s", d, b.String())
}

// TestPlanFollows: a requirement that passes as a consequence of another requirement's change is not listed for manual work, even if
// the other one only warns. It is listed if nothing changes the other one.
func TestPlanFollows(t *testing.T) {
	node := checkstest.Node(map[string]string{"/lib/modules/6.1.0/modules.dep": ""},
		map[string]string{"fs/inotify/max_user_watches": "8192", "fs/inotify/max_user_instances": "128"})
	const text = `
		check "inotify.limits" { severity = "block" }
		sysctl "fs.inotify.max_user_watches" {
			value    = 524288
			severity = "warn"
		}`
	for instances, want := range map[string]string{
		"sysctl \"fs.inotify.max_user_instances\" { value = 8192 }": `  ~ sysctl.fs.inotify.max_user_watches    8192 -> 524288
  ~ sysctl.fs.inotify.max_user_instances  128 -> 8192
  ~ inotify.limits                        max_user_watches=8192 max_user_instances=128 -> max_user_watches>=524288 max_user_instances>=512 by sysctl.fs.inotify.max_user_watches
2 changes; run ` + "`nodegate apply`" + ` to make them
`,
		"": `  ~ sysctl.fs.inotify.max_user_watches  8192 -> 524288
apply cannot fix:
  ! inotify.limits                      max_user_watches=8192 max_user_instances=128, wants max_user_watches>=524288 max_user_instances>=512; run ` + "`sysctl -w fs.inotify.max_user_watches=524288 fs.inotify.max_user_instances=8192`" + `, and add it to the policy
1 change; run ` + "`nodegate apply`" + ` to make it; 1 to fix manually
`,
	} {
		p := checkstest.Load(t, text+"\n"+instances)
		found := checks.Inspect(t.Context(), node.Host(), checks.Boot, catalog.For(p, checks.Boot))
		var b strings.Builder
		require.NoError(t, report.NewPlan(found).Text(&b, report.Plain, nil))
		d := cmp.Diff(want, b.String())
		assert.True(t, d == "", "(-want +got)\n%s\n%s", d, b.String())
		why := report.Blocking(found, nil)
		assert.True(t, len(why) != 0 && strings.Contains(why[len(why)-1].Text, "inotify.limits"), "a warning hides a blocking result: %v", why)
	}
}

// TestPlanOfLinks: the plan has a line for each attribute of each link, counts the writes, and lists apart what apply cannot fix.
func TestPlanOfLinks(t *testing.T) {
	on := host.Feature{Available: true, Requested: true, Active: true}
	node := &hosttest.Machine{Links: map[string]*hosttest.Link{
		"ens5": {MTU: 1500, Features: map[string]host.Feature{"rx-gro": on, "rx-lro": on}},
		"ens6": {MTU: 9001, Features: map[string]host.Feature{"rx-gro": on, "rx-lro": {Active: true}}},
	}}
	p := checkstest.Load(t, `
		link "uplink" {
		  match { name = "ens*" }
		  mtu     = 9001
		  offload = { rx-gro = false, rx-lro = false }
		}`)
	var b strings.Builder
	plan := report.NewPlan(checks.Inspect(t.Context(), node.Host(), checks.Boot, catalog.For(p, checks.Boot)))
	require.NoError(t, plan.Text(&b, report.Plain, nil))
	want := `  ~ link.uplink  ens5 mtu: 1500 -> 9001
  ~ link.uplink  ens5 rx-gro: on -> off
  ~ link.uplink  ens5 rx-lro: on -> off
  ~ link.uplink  ens6 rx-gro: on -> off
apply cannot fix:
  ! link.uplink  ens6: rx-lro=on [fixed], wants rx-gro=off rx-lro=off mtu=9001; the driver fixes it: remove rx-lro from the policy for this kind of link; run ` +
		"`nodegate apply` now; `nodegate install` keeps it across reboots" + `
1 change in 3 writes; run ` + "`nodegate apply`" + ` to make it; 1 to fix manually
`
	d := cmp.Diff(want, b.String())
	assert.True(t, d == "", "(-want +got)\n%s\n%s", d, b.String())
}
