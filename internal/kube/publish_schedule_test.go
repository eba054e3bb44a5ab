package kube

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"nodegate/internal/assert"
)

// api records a Publisher's writes.
type api struct {
	writes []Publication
	tries  int
	err    func() error // the error of the next write
}

func (a *api) write(_ context.Context, p Publication) error {
	a.tries++
	if a.err != nil {
		if err := a.err(); err != nil {
			return err
		}
	}
	a.writes = append(a.writes, p)
	return nil
}

func publication(status, message string) Publication {
	return Publication{Condition: Condition{Type: "NodegatePassed", Status: status, Message: message}}
}

// publishing runs a Publisher in simulated time while do runs.
func publishing(t *testing.T, a *api, do func(p *Publisher, told *[]string)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var told []string
		p := NewPublisher(nil, func(line string) { told = append(told, line) })
		p.write = a.write
		ended := make(chan struct{})
		go func() { p.Run(ctx); close(ended) }()
		do(p, &told)
		cancel()
		<-ended
	})
}

// TestPublishWrites: a node that fails for ten minutes causes at most three writes, and a change is written at once.
func TestPublishWrites(t *testing.T) {
	a := &api{}
	publishing(t, a, func(p *Publisher, _ *[]string) {
		for range 20 { // one round every half minute
			want := publication("False", "fails: swap")
			want.Checked = time.Now()
			p.Set(want)
			time.Sleep(30 * time.Second)
		}
		assert.True(t, len(a.writes) <= 3 && len(a.writes) >= 2, "%d writes in ten minutes, want 2 or 3", len(a.writes))
		p.Set(publication("True", "passes"))
		time.Sleep(changePause + time.Second) // a heartbeat may just have been written
		last := a.writes[len(a.writes)-1]
		assert.True(t, last.Status == "True", "after the change: %+v", last)
	})
}

// TestPublishFlaps: a condition that changes constantly does not flood the API, and the last state is written.
func TestPublishFlaps(t *testing.T) {
	a := &api{}
	publishing(t, a, func(p *Publisher, _ *[]string) {
		for i := range 600 {
			p.Set(publication([]string{"True", "False"}[i%2], "x"))
			time.Sleep(100 * time.Millisecond)
		}
		assert.True(t, len(a.writes) <= 31, "%d writes in a minute", len(a.writes))
		before := len(a.writes)
		for i := range 600 {
			p.Set(publication("False", fmt.Sprint(i)))
			time.Sleep(100 * time.Millisecond)
		}
		n := len(a.writes) - before
		assert.True(t, n <= 3, "%d writes in a minute in which only the message changed", n)
		time.Sleep(2 * time.Minute)
		assert.Equal(t, a.writes[len(a.writes)-1], publication("False", "599"), "the last write is")
	})
}

// TestPublishDown: an API server that is down for five minutes is not flooded and causes one log
// line, and it has the right state half a minute after it is back.
func TestPublishDown(t *testing.T) {
	down := true
	a := &api{err: func() error {
		if down {
			return errors.New("connection refused")
		}
		return nil
	}}
	publishing(t, a, func(p *Publisher, told *[]string) {
		p.Set(publication("True", "passes"))
		time.Sleep(time.Minute)
		p.Set(publication("False", "fails: swap"))
		time.Sleep(4 * time.Minute)
		assert.True(t, a.tries <= 40 && len(*told) == 1, "%d tries in five minutes, logged %q", a.tries, *told)
		down = false
		time.Sleep(maxPause + time.Second)
		want := []Publication{publication("False", "fails: swap")}
		assert.True(t, slices.Equal(a.writes, want), "writes %+v, want %+v", a.writes, want)
	})
}

// TestPublishDownSet: setting the condition during the outage, changed or not, does not hasten the next try. The tries are as rare as for
// a condition that is set once, and the latest state is written half a minute after the API server is back.
func TestPublishDownSet(t *testing.T) {
	for name, other := range map[string]string{"the same": "True", "changing": "False"} {
		t.Run(name, func(t *testing.T) {
			down := true
			a := &api{err: func() error {
				if down {
					return errors.New("connection refused")
				}
				return nil
			}}
			publishing(t, a, func(p *Publisher, told *[]string) {
				for i := range 150 {
					p.Set(publication([]string{"True", other}[i%2], "x"))
					time.Sleep(2 * time.Second)
				}
				assert.True(t, a.tries <= 40 && a.tries >= 10 && len(*told) == 1, "%d tries in five minutes, logged %q", a.tries, *told)
				down = false
				time.Sleep(maxPause + time.Second)
				want := []Publication{publication(other, "x")}
				assert.True(t, slices.Equal(a.writes, want), "writes %+v, want %+v", a.writes, want)
			})
		})
	}
}

// TestPublishJoin: the condition is written within two seconds after the Node exists.
func TestPublishJoin(t *testing.T) {
	joined := false
	a := &api{err: func() error {
		if !joined {
			return fmt.Errorf("GET /api/v1/nodes/n: %w", fs.ErrNotExist)
		}
		return nil
	}}
	publishing(t, a, func(p *Publisher, told *[]string) {
		p.Set(publication("True", "passes"))
		time.Sleep(10*time.Minute + time.Second/2)
		joined = true
		time.Sleep(2 * time.Second)
		assert.True(t, len(a.writes) == 1 && len(*told) == 1, "%d writes, logged %q", len(a.writes), *told)
	})
}

func TestReason(t *testing.T) {
	for in, want := range map[string]string{
		"sysctl.net.ipv4.ip_forward": "SysctlNetIpv4IpForward", "module.br_netfilter": "ModuleBrNetfilter", "swap": "Swap",
		"link.vxlan on flannel.1": "LinkVxlanOnFlannel1", "": "",
	} {
		assert.Equal(t, Reason(in), want, "%q", in)
	}
}
