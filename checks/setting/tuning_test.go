package setting_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/checks/checkstest"
	"nodegate/checks/setting"
	"nodegate/internal/assert"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/verdict"
)

func card() *hosttest.Machine {
	return &hosttest.Machine{Links: map[string]*hosttest.Link{"eth0": {MTU: 1500, Driver: "ena", Tuning: map[string]map[string]host.Amount{
		"ring":     {"rx": {Now: 1024, Max: 8192}, "tx": {Now: 512, Max: 512}, "rx-mini": {}},
		"channels": {"combined": {Now: 4, Max: 4}, "rx": {}},
		"coalesce": {"rx-usecs": {Now: 0}, "adaptive-rx": {Now: 1}},
	}}, "dummy0": {MTU: 1500, Driver: "dummy"}}}
}

func TestTuningApplied(t *testing.T) {
	m := card()
	p := checkstest.Load(t, `
		link "card" {
		  match { name = "eth0" }
		  ring     = { rx = "max", tx = "max" }
		  channels = { combined = 2 }
		  coalesce = { rx-usecs = 50, adaptive-rx = false }
		}
		link "none" {
		  match { driver = "dummy" }
		  ring = { rx = 512 }
		}
		link "much" {
		  match { driver = "ena" }
		  ring     = { rx-mini = "max" }
		  channels = { combined = 8, rx = 0 }
		}`)
	list := catalog.For(p, checks.Boot)
	checkstest.Equal(t, "apply", `
pass link.card: eth0: channels.combined=4, eth0: ring.rx=1024, eth0: coalesce.adaptive-rx=on, eth0: coalesce.rx-usecs=0 -> channels.combined=2 ring.rx=max ring.tx=max coalesce.adaptive-rx=off coalesce.rx-usecs=50
fail link.none: want ring.rx=512, got dummy0: ring.rx=not supported by the driver
fail link.much: want channels.combined=8 channels.rx=0 ring.rx-mini=max, got eth0: channels.combined=2 (link.much at test.hcl:12 requires 8, but link.card at test.hcl:2 requires 2), eth0: ring.rx-mini=not supported by the driver
fail`, checkstest.Print(checks.Apply(t.Context(), m.Host(), checks.Boot, list, nil)))
	checkstest.Equal(t, "changes", `
ethtool channels eth0 combined 2
ethtool ring eth0 rx 8192
ethtool coalesce eth0 adaptive-rx 0
ethtool coalesce eth0 rx-usecs 50`, strings.Join(m.Log, "\n"))
}

// TestTuningResets: what may reset a link is changed when the link appears, and never as a correction of drift.
func TestTuningResets(t *testing.T) {
	p := checkstest.Load(t, `
		link "card" {
		  match { name = "eth0" }
		  ring     = { rx = 2048 }
		  coalesce = { rx-usecs = 50 }
		}`)
	for resets, want := range map[bool]string{
		true: "[ethtool ring eth0 rx 2048 ethtool coalesce eth0 rx-usecs 50]", false: "[ethtool coalesce eth0 rx-usecs 50]",
	} {
		m := card()
		s, err := setting.Links(p)[0].Reconcile(t.Context(), m.Host(), host.Link{Name: "eth0", MTU: 1500}, resets, resets,
			func() bool { return true })
		assert.True(t, err == nil && s.Set && s.Still == "" && fmt.Sprint(m.Log) == want, "%t: %v, %+v, %v", resets, m.Log, s, err)
	}
}

// TestTuningOnKernel sets the channels of a veth and the coalescing of a tap, which are the only devices of a namespace that have some,
// and replays the recording.
func TestTuningOnKernel(t *testing.T) {
	h := checkstest.Scratch(t)
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "veth0", NumRxQueues: 4, NumTxQueues: 4}, PeerName: "veth1"}
	checkstest.AddLink(t, veth)
	checkstest.AddLink(t, &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: "tap0"}, Mode: netlink.TUNTAP_MODE_TAP})
	p := checkstest.Load(t, `
		link "pair" {
		  match { name = "veth0" }
		  channels = { rx = 2, tx = "max" }
		}
		link "tap" {
		  match { driver = "tun" }
		  coalesce = { rx-frames = 16 }
		}
		link "bridge" {
		  match { name = "veth1" }
		  ring = { rx = "max" }
		}
		link "much" {
		  match { name = "veth1" }
		  channels = { rx = 64 }
		}`)
	list := catalog.For(p, checks.Boot)
	recorder, snapshot := host.Record(h)
	before := checkstest.Print(checks.Inspect(t.Context(), recorder, checks.Boot, list))
	checkstest.Equal(t, "inspection", `
fail link.pair: want channels.rx=2 channels.tx=max, got veth0: channels.rx=4
fail link.tap: want coalesce.rx-frames=16, got tap0: coalesce.rx-frames=0
fail link.bridge: want ring.rx=max, got veth1: ring.rx=not supported by the driver
fail link.much: want channels.rx=64, got veth1: channels.rx=4
fail`, before)
	checkstest.Equal(t, "replay", before, checkstest.Print(checks.Inspect(t.Context(), host.Replay(snapshot), checks.Boot, list)))
	for _, res := range checks.Apply(t.Context(), h, checks.Boot, list, nil).Results[:2] {
		assert.True(t, res.Verdict == verdict.Pass && res.Fixed, "%s: %+v %v", res.Name, res.State, res.Err)
	}
	if a, err := h.Links.Tuning(t.Context(), "veth0", "channels"); err != nil || a["rx"].Now != 2 || a["tx"] != (host.Amount{Now: 4, Max: 4}) {
		t.Errorf("channels: %v, %v", a, err)
	}
	if err := h.Links.Set(t.Context(), "veth0", "channels", map[string]string{"rx": "64"}); err == nil {
		t.Error("64 channels were accepted")
	}
}

// TestAttributes: a link block sets the attributes of an interface and of each of its queues.
func TestAttributes(t *testing.T) {
	const dir = "/sys/class/net/eth0/"
	m := card()
	m.Files = map[string]string{dir + "threaded": "0\n", dir + "queues/rx-0/rps_cpus": "00\n", dir + "queues/rx-1/rps_cpus": "0f\n"}
	list := catalog.For(checkstest.Load(t, `
		link "card" {
		  match { driver = "ena" }
		  sysfs = { "class/net/*/queues/rx-*/rps_cpus" = "f", "class/net/*/threaded" = 1 }
		}`), checks.Boot)
	checkstest.Equal(t, "apply", "pass link.card: eth0: "+dir+"queues/rx-0/rps_cpus=00, eth0: "+dir+"threaded=0 -> "+
		"/sys/class/net/*/queues/rx-*/rps_cpus=f /sys/class/net/*/threaded=1\npass",
		checkstest.Print(checks.Apply(t.Context(), m.Host(), checks.Boot, list, nil)))
	checkstest.Equal(t, "changes", "write "+dir+"queues/rx-0/rps_cpus f\nwrite "+dir+"threaded 1", strings.Join(m.Log, "\n"))
}
