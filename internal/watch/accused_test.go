package watch

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/report"
	"nodegate/policy"
)

// silentUnits is a systemd that never answers.
type silentUnits struct{ host.Units }

func (silentUnits) State(ctx context.Context, _ string) (active, file string, err error) {
	<-ctx.Done()
	return "", "", ctx.Err()
}

// TestFightWhileSystemdIsSilent: watch asks systemd who the other program is, of two parameters in one round; the
// loop waits for it once.
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
			Host: door, Observer: m.Host(), Every: every, Off: func() string { return "" },
			Policy: func(bool) (*policy.Policy, error) {
				return load("sysctl \"net.ipv4.ip_forward\" { value = 1 }\nsysctl \"net.ipv4.conf.all.forwarding\" { value = 1 }")
			},
			AliveEvery: time.Second,
			Alive: func() {
				longest = max(longest, time.Since(alive))
				alive = time.Now()
			},
			Ready: func(State) {},
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
		if n := len(w.State().Fights); n != len(keys) {
			t.Errorf("%d fights, want %d", n, len(keys))
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if limit := actionTime + 2*time.Second; longest > limit {
			t.Errorf("the loop gave no sign of life for %s, want %s at most", longest, limit)
		}
	})
}
