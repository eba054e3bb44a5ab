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
)

// api is what a Publisher writes to.
type api struct {
	writes []Publication
	tries  int
	err    func() error // why a write fails now
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

// TestPublishWrites: a node that fails for ten minutes is at most three writes, and a change is there at once.
func TestPublishWrites(t *testing.T) {
	a := &api{}
	publishing(t, a, func(p *Publisher, _ *[]string) {
		for range 20 { // a round each half minute
			p.Set(publication("False", "fails: swap"))
			time.Sleep(30 * time.Second)
		}
		if len(a.writes) > 3 || len(a.writes) < 2 {
			t.Errorf("%d writes in ten minutes, want 2 or 3", len(a.writes))
		}
		p.Set(publication("True", "passes"))
		time.Sleep(changePause + time.Second) // a heartbeat may just have been written
		if last := a.writes[len(a.writes)-1]; last.Status != "True" {
			t.Errorf("after the change: %+v", last)
		}
	})
}

// TestPublishFlaps: what changes all the time does not flood the API, and the last state arrives.
func TestPublishFlaps(t *testing.T) {
	a := &api{}
	publishing(t, a, func(p *Publisher, _ *[]string) {
		for i := range 600 {
			p.Set(publication([]string{"True", "False"}[i%2], "x"))
			time.Sleep(100 * time.Millisecond)
		}
		if len(a.writes) > 31 {
			t.Errorf("%d writes in a minute", len(a.writes))
		}
		before := len(a.writes)
		for i := range 600 {
			p.Set(publication("False", fmt.Sprint(i)))
			time.Sleep(100 * time.Millisecond)
		}
		if n := len(a.writes) - before; n > 3 {
			t.Errorf("%d writes in a minute in which only the words changed", n)
		}
		time.Sleep(2 * time.Minute)
		if last := a.writes[len(a.writes)-1]; last != publication("False", "599") {
			t.Errorf("the last write is %+v", last)
		}
	})
}

// TestPublishDown: an API server that is down for five minutes is not flooded, is complained of once, and has the right state
// half a minute after it is back.
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
		if a.tries > 40 || len(*told) != 1 {
			t.Errorf("%d tries in five minutes, told %q", a.tries, *told)
		}
		down = false
		time.Sleep(mostPause + time.Second)
		if want := []Publication{publication("False", "fails: swap")}; !slices.Equal(a.writes, want) {
			t.Errorf("writes %+v, want %+v", a.writes, want)
		}
	})
}

// TestPublishDownSet: what is set meanwhile, changed or not, does not hurry the next try. The tries come as seldom as of one that
// is set once, and the latest state is there half a minute after the API server is back.
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
				if a.tries > 40 || a.tries < 10 || len(*told) != 1 {
					t.Errorf("%d tries in five minutes, told %q", a.tries, *told)
				}
				down = false
				time.Sleep(mostPause + time.Second)
				if want := []Publication{publication(other, "x")}; !slices.Equal(a.writes, want) {
					t.Errorf("writes %+v, want %+v", a.writes, want)
				}
			})
		})
	}
}

// TestPublishJoin: the condition is there two seconds after the Node is.
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
		if len(a.writes) != 1 || len(*told) != 1 {
			t.Errorf("%d writes, told %q", len(a.writes), *told)
		}
	})
}

func TestReason(t *testing.T) {
	for in, want := range map[string]string{
		"sysctl.net.ipv4.ip_forward": "SysctlNetIpv4IpForward", "module.br_netfilter": "ModuleBrNetfilter", "swap": "Swap",
		"link.vxlan on flannel.1": "LinkVxlanOnFlannel1", "": "",
	} {
		if got := Reason(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}
