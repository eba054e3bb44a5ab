package watch

import (
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
	"nodegate/policy"
)

// TestRereadReport: a reloaded policy has a new requirement for existing links, whose drift is only reported.
func TestRereadReport(t *testing.T) {
	if !hosttest.OwnNetns(t) {
		return
	}
	add(t, &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}})
	reread := make(chan os.Signal)
	w := start(t, "", func(w *Watcher) {
		w.Reread = reread
		text := `link "other" {
			match { name = "other*" }
			mtu = 1400
		}
		link "changed" {
			match { name = "changed*" }
			mtu = 1400
			drift = "report"
		}`
		w.Policy = func(again bool) (*policy.Policy, error) {
			if again {
				text = strings.ReplaceAll(text, `"changed*"`, `"c*"`) + reported
			}
			return load(text)
		}
	})
	for _, name := range []string{"eth1", "c1"} {
		add(t, &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}})
	}
	reread <- os.Interrupt
	eventually(t, "the policy is read again", func() bool { return w.heard("reloaded the policy") == 1 })
	noticed(t, "eth0", "eth1", "c1")
	if eth0, eth1, c1 := mtu(t, "eth0"), mtu(t, "eth1"), mtu(t, "c1"); eth0 != 1500 || eth1 != 1500 || c1 != 1500 {
		t.Errorf("mtu of eth0 is %d, of eth1 %d, of c1 %d, want 1500: they were there before the requirement", eth0, eth1, c1)
	}
}

// TestFactsReport: a requirement that takes effect because a fact becomes known later sets the links that have appeared since watch
// started, such as a CNI's own, and does not change the links that existed before.
func TestFactsReport(t *testing.T) {
	if !hosttest.OwnNetns(t) {
		return
	}
	add(t, &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}})
	var known, used atomic.Bool
	start(t, "", func(w *Watcher) {
		w.Policy = func(bool) (*policy.Policy, error) {
			if !known.Load() {
				return load(`link "other" {
					match { name = "other*" }
					mtu = 1400
				}`)
			}
			return load(reported)
		}
		w.Publish = func(s Status) { used.Store(used.Load() || s.Policy.Links[0].Match.Name == "eth*") }
	})
	add(t, &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "eth1"}})
	known.Store(true)
	eventually(t, "the policy is in use", used.Load)
	noticed(t, "eth0", "eth1")
	eth0, eth1 := mtu(t, "eth0"), mtu(t, "eth1")
	assert.True(t, eth0 == 1500 && eth1 == 1400, "mtu of eth0 is %d, of eth1 %d, want 1500 and 1400", eth0, eth1)
}

// TestFactsReportReread: the same, if the fact becomes known in a round that also reloads the policy, which may have new requirements.
func TestFactsReportReread(t *testing.T) {
	if !hosttest.OwnNetns(t) {
		return
	}
	block := func(name, when string) string {
		return fmt.Sprintf("link %[1]q {\nmatch { name = \"%[1]s*\" }\nmtu = 1400\ndrift = \"report\"\n%s\n}\n", name, when)
	}
	reread := make(chan os.Signal)
	w := start(t, "", func(w *Watcher) {
		w.Reread, w.Every = reread, time.Hour
		text := block("eth", `when = cni.name == "flannel"`) + block("cloud", `when = cloud.provider == "aws"`)
		cni := "none"
		w.Policy = func(again bool) (*policy.Policy, error) {
			if again {
				text, cni = text+block("late", ""), "flannel"
			}
			p, diags := policy.Load([]policy.File{{Name: "test.hcl", Text: []byte(text)}}, policy.Options{Fact: func(name string) (any, bool) {
				if name == "cni.name" {
					return cni, true
				}
				return "aws", again
			}})
			if diags.HasErrors() {
				return nil, diags
			}
			return p, nil
		}
	})
	names := []string{"eth1", "cloud1", "late1"}
	for _, name := range names {
		add(t, &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}})
	}
	reread <- os.Interrupt
	eventually(t, "the policy is read again", func() bool { return w.heard("reloaded the policy") == 1 })
	noticed(t, names...)
	if eth, cloud, late := mtu(t, "eth1"), mtu(t, "cloud1"), mtu(t, "late1"); eth != 1400 || cloud != 1400 || late != 1500 {
		t.Errorf("mtu of eth1 is %d, of cloud1 %d, of late1 %d, want 1400, 1400 and 1500", eth, cloud, late)
	}
}

const reported = `
	link "eth" {
		match { name = "eth*" }
		mtu = 1400
		drift = "report"
	}`

// noticed causes a notification about each of the links, and returns when watch has handled them and has set a new link.
func noticed(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		l, err := netlink.LinkByName(name)
		require.NoError(t, err)
		require.NoError(t, netlink.LinkSetUp(l))
	}
	// Notifications arrive in order. A round may set the first new link before its notification is handled.
	for _, name := range []string{"eth9", "eth8"} {
		add(t, &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}})
		eventually(t, "a new link is set", func() bool { return mtu(t, name) == 1400 })
	}
}

// TestRefusedFactsUsed: while the files cannot be read, the last good policy is re-evaluated with the current facts.
func TestRefusedFactsUsed(t *testing.T) {
	if !hosttest.OwnNetns(t) {
		return
	}
	reread := make(chan os.Signal)
	var known atomic.Bool
	w := start(t, "", func(w *Watcher) {
		w.Reread = reread
		refused := false
		w.Policy = func(again bool) (*policy.Policy, error) {
			text := `sysctl "net.ipv4.ip_forward" { value = 1 }`
			if known.Load() {
				text += reported
			}
			p, err := load(text)
			if refused = refused || again; refused {
				err = os.ErrNotExist
			}
			return p, err
		}
	})
	reread <- os.Interrupt
	eventually(t, "the policy error is reported", func() bool { return w.State().PolicyError != "" })
	known.Store(true)
	eventually(t, "the requirement is in use", func() bool { return len(w.State().Policy.Links) == 1 })
	add(t, &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}})
	eventually(t, "a new link is set", func() bool { return mtu(t, "eth0") == 1400 })
	if n := w.heard("the last good one stays in use"); n != 1 || w.State().PolicyError == "" {
		t.Errorf("said %d times that the policy cannot be read, PolicyError %q", n, w.State().PolicyError)
	}
}
