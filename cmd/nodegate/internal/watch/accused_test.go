package watch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"nodegate/checks"
	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/assert"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
	"nodegate/policy"
)

// silentUnits is a systemd that never responds.
type silentUnits struct{ host.Units }

func (silentUnits) State(ctx context.Context, _ string) (active, file string, err error) {
	<-ctx.Done()
	return "", "", ctx.Err()
}

// TestFightWhileSystemdIsSilent: watch queries systemd for the writers of two sysctls in one round, but the loop
// waits for the timeout only once.
func TestFightWhileSystemdIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &hosttest.Machine{Files: map[string]string{}}
		keys := []string{"net/ipv4/ip_forward", "net/ipv4/conf/all/forwarding"}
		for _, key := range keys {
			m.Sysctl(key, "0")
		}
		door := m.Host()
		door.Units = silentUnits{door.Units}
		const every = 100 * time.Second
		alive, longest := time.Now(), time.Duration(0)
		w := &Watcher{
			Host: door, Observer: m.Host(), Every: every, BreakGlass: func() string { return "" },
			Policy: func(bool) (*policy.Policy, error) {
				return load("sysctl \"net.ipv4.ip_forward\" { value = 1 }\nsysctl \"net.ipv4.conf.all.forwarding\" { value = 1 }")
			},
			AliveEvery: time.Second,
			Alive: func() {
				longest = max(longest, time.Since(alive))
				alive = time.Now()
			},
			Ready: func(Status) {},
			Corrected: func(report.Correction) {
				for _, key := range keys {
					m.Sysctl(key, "0")
				}
			},
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.Run(ctx) }()
		time.Sleep(fightCount*every + every/2)
		assert.Equal(t, len(w.State().Fights), len(keys))
		cancel()
		assert.NoError(t, <-ended)
		limit := actionTime + 2*time.Second
		assert.True(t, longest <= limit, "the loop gave no sign of life for %s, want %s at most", longest, limit)
	})
}

// stubbornLinks do not change an offload, with or without an error.
type stubbornLinks struct {
	host.Links
	tried *int
	err   error
}

func (l stubbornLinks) Set(context.Context, string, string, map[string]string) error {
	*l.tried++
	return l.err
}

// TestFailureIsNoFight: watch does not report a fight if it cannot correct a setting itself, because the kernel refuses the value or
// changes it. It reports the failure once, even if the difference was known before, and retries less and less often.
func TestFailureIsNoFight(t *testing.T) {
	const panicPolicy, written = `sysctl "kernel.panic" { value = 10 }`, "/proc/sys/kernel/panic"
	const known, fails = "fail link.vxlan: <nil>", "fail sysctl.kernel.panic: "
	refused := errors.New("not permitted")
	refuse := func(m *hosttest.Machine) { m.Refuse = map[string]error{written: refused} }
	clamp := func(m *hosttest.Machine) { m.Clamp = map[string]string{written: "5"} }
	const why = "writing \"10\" to sysctl: write " + written + ": not permitted"
	for _, test := range []struct {
		what, policy string
		set          func(*hosttest.Machine)
		link         error // the error of setting the link
		off          bool  // break-glass is in force for half a minute
		want         []string
	}{
		{"refused", panicPolicy, refuse, nil, false, []string{fails + why}},
		{"made another", panicPolicy, clamp, nil, false, []string{fails + "wrote kernel.panic=10; the kernel stores 5 instead"}},
		{"refused once it is on", panicPolicy, refuse, nil, true, []string{fails + "<nil>", fails + why}},
		{"a link refuses", vxlanPolicy, nil, refused, false, []string{"trouble link.vxlan: not permitted", known}},
		{"a link stays", vxlanPolicy, nil, nil, false,
			[]string{"trouble link.vxlan: flannel.1 was set but still differs: " + feature + "=on [requested off]", known}},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := &hosttest.Machine{Files: map[string]string{}, Links: map[string]*hosttest.Link{
				"flannel.1": {Index: 7, Kind: "vxlan", Features: map[string]host.Feature{feature: {Available: true, Active: true}}},
			}}
			m.Sysctl("kernel/panic", "0")
			if test.set != nil {
				test.set(m)
			}
			door := m.Host()
			tried, began := 0, time.Now()
			door.Links = stubbornLinks{door.Links, &tried, test.link}
			door.Files = countedFiles{door.Files, &tried}
			var said []string
			w := &Watcher{
				Host: door, Observer: m.Host(), Every: 30 * time.Second,
				Policy: func(bool) (*policy.Policy, error) { return load(test.policy) },
				BreakGlass: func() string {
					if test.off && time.Since(began) < 30*time.Second {
						return "the test"
					}
					return ""
				},
				Changed: func(r checks.Result) {
					said = append(said, fmt.Sprintf("%s %s: %v", r.Verdict, r.Name, r.Err))
				},
				Fighting: func(f report.Fight, _ bool) { said = append(said, "fight "+f.Name) },
				Trouble:  func(line string) { said = append(said, "trouble "+line) },
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- w.Run(ctx) }()
			time.Sleep(20 * time.Minute)
			assert.Equal(t, len(w.State().Fights), 0, "%s", test.what)
			cancel()
			assert.NoError(t, <-ended)
			assert.True(t, slices.Equal(said, test.want), "%s: said was %q", test.what, said)
			if tried < fightCount || tried > fightCount+5 { // then retries after 1, 2, 4 and 8 minutes
				t.Errorf("%s: tried %d times", test.what, tried)
			}
		})
	}
}

// TestLinkFight: a link setting that another program keeps changing back is a fight.
func TestLinkFight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		on := func() map[string]host.Feature {
			return map[string]host.Feature{feature: {Available: true, Requested: true, Active: true}}
		}
		link := &hosttest.Link{Index: 7, Kind: "vxlan", Features: on()}
		m := &hosttest.Machine{Links: map[string]*hosttest.Link{"flannel.1": link}}
		var said []string
		w := &Watcher{
			Host: m.Host(), Observer: m.Host(), Every: 30 * time.Second, BreakGlass: func() string { return "" },
			Policy:    func(bool) (*policy.Policy, error) { return load(vxlanPolicy) },
			Corrected: func(report.Correction) { link.Features = on() },
			Fighting:  func(f report.Fight, _ bool) { said = append(said, "fight "+f.Name) },
			Trouble:   func(line string) { said = append(said, "trouble "+line) },
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.Run(ctx) }()
		time.Sleep(5 * time.Minute)
		cancel()
		assert.NoError(t, <-ended)
		want := []string{"fight link.vxlan of flannel.1"}
		assert.True(t, slices.Equal(said, want), "said was %q, want %q", said, want)
	})
}

// countedFiles counts the writes of sysctls.
type countedFiles struct {
	host.Files
	tried *int
}

func (f countedFiles) Write(name string, data []byte) error {
	*f.tried++
	return f.Files.Write(name, data)
}
