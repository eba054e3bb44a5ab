package setting_test

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/checks/checkstest"
	"nodegate/internal/assert"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/verdict"
)

// TestSysfsAnswers: the value of a list of choices is the word in brackets; a value that is not in the list, and an attribute that no user
// may write, are for the operator.
func TestSysfsAnswers(t *testing.T) {
	m := &hosttest.Machine{Files: map[string]string{
		"/sys/kernel/mm/transparent_hugepage/enabled":                      "[always] madvise never\n",
		"/sys/kernel/mm/transparent_hugepage/defrag":                       "always defer defer+madvise [madvise] never\n",
		"/sys/block/vda/queue/scheduler":                                   "[mq-deadline] none\n",
		"/sys/block/vdb/queue/scheduler":                                   "mq-deadline [none]\n",
		"/sys/block/dm-0/queue/scheduler":                                  "none\n",
		"/sys/devices/system/cpu/smt/control":                              "notsupported\n",
		"/sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc\n",
		"/sys/module/zswap/parameters/enabled":                             "N\n",
	}, Modes: map[string]fs.FileMode{"/sys/module/zswap/parameters/enabled": 0o444},
		Clamp: map[string]string{
			"/sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
			"/sys/block/vda/queue/scheduler":              "mq-deadline [none]",
		}}
	p := checkstest.Load(t, `
		sysfs "kernel/mm/transparent_hugepage/enabled" { value = "madvise" }
		sysfs "kernel/mm/transparent_hugepage/defrag" { one_of = ["never", "madvise"] }
		sysfs "block/*/queue/scheduler" { value = "none" }
		sysfs "block/sd*/queue/scheduler" { value = "bfq" }
		sysfs "devices/system/clocksource/clocksource0/current_clocksource" { value = "tsc" }
		sysfs "module/zswap/parameters/enabled" { value = 1 }
		sysfs "kernel/mm/ksm/run" { value = 1 }`)
	list := catalog.For(p, checks.Boot)
	r := checks.Apply(t.Context(), m.Host(), checks.Boot, list, nil)
	checkstest.Equal(t, "report", `
pass sysfs.kernel/mm/transparent_hugepage/enabled: always -> madvise
pass sysfs.kernel/mm/transparent_hugepage/defrag
pass sysfs.block/*/queue/scheduler: /sys/block/vda/queue/scheduler is mq-deadline -> none
skipped sysfs.block/sd*/queue/scheduler: no parameter matches /sys/block/sd*/queue/scheduler yet
pass sysfs.devices/system/clocksource/clocksource0/current_clocksource
fail sysfs.module/zswap/parameters/enabled: want 1, got N
fail sysfs.kernel/mm/ksm/run: want 1, got no such parameter
fail`, checkstest.Print(r))
	checkstest.Equal(t, "changes", `
write /sys/kernel/mm/transparent_hugepage/enabled madvise
write /sys/block/vda/queue/scheduler none`, strings.Join(m.Log, "\n"))
	for name, want := range map[string]string{
		"sysfs.module/zswap/parameters/enabled": "/sys/module/zswap/parameters/enabled is read-only",
		"sysfs.kernel/mm/ksm/run":               "this kernel has no /sys/kernel/mm/ksm/run",
	} {
		for _, res := range r.Results {
			assert.True(t, res.Name != name || strings.Contains(res.State.Remedy, want), "%s: %s", name, res.State.Remedy)
		}
	}

	m.Files["/sys/kernel/mm/transparent_hugepage/enabled"] = "always [never]\n"
	m.Log = nil
	r = checks.Apply(t.Context(), m.Host(), checks.Boot, list[:1], nil)
	if got := r.Results[0].State; len(m.Log) > 0 || got.Got != "never" || !strings.Contains(got.Remedy, "this kernel offers always, never for") {
		t.Errorf("%q %+v", m.Log, got)
	}
}

// TestSysfsOnKernel sets attributes of a link in a namespace with its own /sys, and replays the recording of it.
func TestSysfsOnKernel(t *testing.T) {
	h := checkstest.ScratchSys(t)
	checkstest.AddLink(t, &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "veth0.1"}, PeerName: "veth1"})
	p := checkstest.Load(t, `
		sysfs "class/net/veth0.1/queues/rx-0/rps_cpus" { value = "1" }
		sysfs "class/net/veth*/gro_flush_timeout" { min = 20000 }
		sysfs "class/net/lo/threaded" { value = 0 }`)
	list := catalog.For(p, checks.Boot)
	recorder, snapshot := host.Record(h)
	before := checkstest.Print(checks.Inspect(t.Context(), recorder, checks.Boot, list))
	checkstest.Equal(t, "inspection", `
fail sysfs.class/net/veth0.1/queues/rx-0/rps_cpus: want 1, got 0
fail sysfs.class/net/veth*/gro_flush_timeout: want at least 20000, got /sys/class/net/veth0.1/gro_flush_timeout is 0, /sys/class/net/veth1/gro_flush_timeout is 0
pass sysfs.class/net/lo/threaded
fail`, before)
	checkstest.Equal(t, "replay", before, checkstest.Print(checks.Inspect(t.Context(), host.Replay(snapshot), checks.Boot, list)))
	for _, res := range checks.Apply(t.Context(), h, checks.Boot, list, nil).Results {
		assert.True(t, res.Verdict == verdict.Pass, "%s: %+v %v", res.Name, res.State, res.Err)
	}
	for key, want := range map[string]string{"queues/rx-0/rps_cpus": "1", "gro_flush_timeout": "20000"} {
		if got, err := h.ReadSysctl("/sys/class/net/veth0.1/" + key); err != nil || got != want {
			t.Errorf("%s: %s, %v", key, got, err)
		}
	}
}
