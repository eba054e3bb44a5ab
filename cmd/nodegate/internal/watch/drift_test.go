package watch

import (
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
	"nodegate/policy"
)

func (w *watching) sysctl(t *testing.T, key string) string {
	t.Helper()
	v, err := w.h.ReadSysctl(key)
	require.NoError(t, err)
	return v
}

func (w *watching) flip(t *testing.T, key, value string) {
	t.Helper()
	require.NoError(t, w.h.WriteSysctl(key, value))
}

const driftPolicy = `
sysctl "net.ipv4.ip_forward" { value = 1 }
sysctl "net.ipv4.conf.all.rp_filter" {
  value = 0
  drift = "report"
}
sysctl "net.ipv4.conf.all.send_redirects" {
  value = 1
  drift = "ignore"
}
`

// TestDrift: three sysctls drift; watch corrects one, reports one and ignores one.
func TestDrift(t *testing.T) {
	if !hosttest.OwnNetns(t) {
		return
	}
	w := start(t, driftPolicy, nil)
	const correction = "corrected sysctl.net.ipv4.ip_forward  new=false: 0 -> 1"
	before := w.heard(correction) // forwarding is off in a new namespace
	w.flip(t, "net/ipv4/ip_forward", "0")
	w.flip(t, "net/ipv4/conf/all/rp_filter", "2")
	w.flip(t, "net/ipv4/conf/all/send_redirects", "0")
	eventually(t, "the first is corrected", func() bool {
		return w.sysctl(t, "net/ipv4/ip_forward") == "1" && w.heard(correction) == before+1
	})
	rounds := w.State().Rounds
	eventually(t, "two more rounds", func() bool { return w.State().Rounds >= rounds+2 })
	assert.Equal(t, w.sysctl(t, "net/ipv4/conf/all/rp_filter"), "2", "rp_filter")
	assert.Equal(t, w.heard("fail sysctl.net.ipv4.conf.all.rp_filter"), 1, "that rp_filter fails was reported")
	if got := w.sysctl(t, "net/ipv4/conf/all/send_redirects"); got != "0" || w.heard("send_redirects") != 0 {
		t.Errorf("send_redirects is %s and was reported %d times; want 0 and never", got, w.heard("send_redirects"))
	}
	w.flip(t, "net/ipv4/conf/all/rp_filter", "0")
	eventually(t, "the new pass is reported", func() bool { return w.heard("pass sysctl.net.ipv4.conf.all.rp_filter") == 1 })
}

// TestFight: another program keeps changing a sysctl back. Watch reports the fight
// once, and does not correct the sysctl until a pause is over.
func TestFight(t *testing.T) {
	if !hosttest.OwnNetns(t) {
		return
	}
	w := start(t, driftPolicy, nil)
	stop := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
				_ = w.h.WriteSysctl("net/ipv4/ip_forward", "0")
			}
		}
	}()
	defer func() { close(stop); <-stopped }()
	eventually(t, "the fight is reported", func() bool { return len(w.State().Fights) == 1 })
	rounds := w.State().Rounds
	eventually(t, "three more rounds", func() bool { return w.State().Rounds >= rounds+3 })
	assert.Equal(t, w.State().Corrected["sysctl.net.ipv4.ip_forward"], fightCount, "corrected")
	assert.Equal(t, w.heard("fight sysctl.net.ipv4.ip_forward over=false"), 1, "the fight was reported")
	assert.True(t, w.heard("bpftrace") == 1, "nothing says how to catch the other program")
}

// TestOff: while break-glass is in force, watch changes nothing.
func TestOff(t *testing.T) {
	if !hosttest.OwnNetns(t) {
		return
	}
	var off atomic.Bool
	w := start(t, driftPolicy+vxlanPolicy, func(w *Watcher) {
		w.BreakGlass = func() string {
			if off.Load() {
				return "the test"
			}
			return ""
		}
	})
	off.Store(true)
	w.flip(t, "net/ipv4/ip_forward", "0")
	add(t, vxlan("flannel.1", 1))
	rounds := w.State().Rounds
	eventually(t, "two more rounds", func() bool { return w.State().Rounds >= rounds+2 })
	assert.True(t, w.sysctl(t, "net/ipv4/ip_forward") == "0" && !w.off("flannel.1") && w.State().BreakGlass == "the test",
		"corrected despite break-glass by %q", w.State().BreakGlass)
	off.Store(false)
	eventually(t, "it is corrected afterwards", func() bool {
		return w.sysctl(t, "net/ipv4/ip_forward") == "1" && w.off("flannel.1")
	})
}

// TestReread: SIGHUP makes watch reload the policy; if the new policy cannot be read, the last good one stays in use.
func TestReread(t *testing.T) {
	if !hosttest.OwnNetns(t) {
		return
	}
	reread := make(chan os.Signal)
	var broken atomic.Bool
	w := start(t, "", func(w *Watcher) {
		w.Reread = reread
		text := driftPolicy
		w.Policy = func(again bool) (*policy.Policy, error) {
			if again && broken.Load() {
				return nil, errors.New("test.hcl:1:1: no")
			}
			if again {
				text += `sysctl "net.ipv4.conf.all.log_martians" { value = 1 }`
			}
			return load(text)
		}
	})
	broken.Store(true)
	reread <- os.Interrupt
	eventually(t, "the broken policy is reported", func() bool { return w.heard("the last good one stays in use: test.hcl:1:1: no") == 1 })
	w.flip(t, "net/ipv4/ip_forward", "0")
	eventually(t, "the good policy is in use", func() bool { return w.sysctl(t, "net/ipv4/ip_forward") == "1" })
	broken.Store(false)
	reread <- os.Interrupt
	eventually(t, "the new policy is in use", func() bool { return w.sysctl(t, "net/ipv4/conf/all/log_martians") == "1" })
}
