package cluster

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Churn is what changes in a cluster that lives: Services whose endpoints come, go and are not ready, one that is scaled from
// none to many and back, and what else they say, which is every third change.
type Churn struct {
	Services  int           // how many; the first one is the one that is scaled
	Endpoints int           // of each of the others, about
	Scale     int           // of the first one, at its largest
	Every     time.Duration // one change of an EndpointSlice in each

	services []*Service
	changes  atomic.Int64
	next     int // the address of the next new endpoint
	scaled   int // up while positive, and as many changes ago down
}

// Usual is what issue trackers call ordinary: five changes a second, and a Deployment between 0 and 50.
func Usual() *Churn {
	return &Churn{Services: 20, Endpoints: 10, Scale: 50, Every: 200 * time.Millisecond}
}

// Prepare makes the Services and their first endpoints.
func (c *Churn) Prepare(ctx context.Context, plane *ControlPlane) error {
	for i := range c.Services {
		s, err := plane.AddService(ctx, fmt.Sprintf("churn-%d", i), "TCP")
		if err != nil {
			return err
		}
		if i > 0 {
			for range c.Endpoints {
				s.Ready = append(s.Ready, c.address())
			}
		}
		if err := s.Update(ctx); err != nil {
			return err
		}
		c.services = append(c.services, s)
	}
	return nil
}

// Run changes endpoints until the context ends. It returns nil then, or the first error.
func (c *Churn) Run(ctx context.Context) error {
	tick := time.NewTicker(c.Every)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := c.one(ctx, n); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		c.changes.Add(1)
	}
}

// one makes the nth change.
func (c *Churn) one(ctx context.Context, n int) error {
	s := c.services[n%len(c.services)]
	update := s.Update
	switch {
	case n%3 == 2:
		update = func(ctx context.Context) error { return s.say(ctx, n/(3*len(c.services))+n%len(c.services)) }
	case s == c.services[0]:
		c.scale(s)
	default:
		c.change(s, n)
	}
	if err := update(ctx); err != nil {
		return fmt.Errorf("changing %s: %w", s.Name, err)
	}
	return nil
}

// say changes what a Service says beside its endpoints, to the nth of some ways. All have addresses of their own.
func (s *Service) say(ctx context.Context, n int) error {
	_, digits, _ := strings.Cut(s.Name, "-")
	number, err := strconv.Atoi(digits)
	if err != nil {
		return fmt.Errorf("%s: its name has no number: %w", s.Name, err)
	}
	// Of the addresses for benchmarks (RFC 2544), 16 thousand for each use.
	own := func(block int) string { return fmt.Sprintf("198.18.%d.%d", block+number>>8, number&255) }
	balanced := func(policy string, affinity int, external []string, ranges ...string) object {
		spec := object{
			"type": "LoadBalancer", "externalTrafficPolicy": policy, "externalIPs": external, "loadBalancerSourceRanges": ranges,
			"sessionAffinity": "None", "sessionAffinityConfig": nil,
		}
		if affinity > 0 {
			spec["sessionAffinity"] = "ClientIP"
			spec["sessionAffinityConfig"] = object{"clientIP": object{"timeoutSeconds": affinity}}
		}
		return spec
	}
	first, second := []object{{"ip": own(0)}}, []object{{"ip": own(64)}}
	external := []string{own(128)}
	const wide, narrow, local = "198.51.100.0/24", "203.0.112.0/21", network + ".0/24"
	steps := []struct {
		spec    object
		ingress []object
	}{
		{balanced("Local", 60, nil), first},
		{balanced("Local", 90, external, wide), nil},
		{balanced("Cluster", 0, external, wide, narrow), second},
		{balanced("Cluster", 0, nil, local), nil},
		{balanced("Local", 0, nil), first},
		{object{
			"type": "ClusterIP", "externalTrafficPolicy": nil, "externalIPs": nil, "healthCheckNodePort": nil, "loadBalancerSourceRanges": nil,
			"allocateLoadBalancerNodePorts": nil, "sessionAffinity": "None", "sessionAffinityConfig": nil,
		}, nil},
	}
	step := steps[n%len(steps)]
	return s.Patch(ctx, step.spec, step.ingress)
}

// Changes is how many changes the API has taken.
func (c *Churn) Changes() int64 { return c.changes.Load() }

// scale goes from none to Scale in fives, and back.
func (c *Churn) scale(s *Service) {
	const step = 5
	if c.scaled++; c.scaled > 2*c.Scale/step {
		c.scaled = 1
	}
	if c.scaled <= c.Scale/step {
		for range step {
			s.Ready = append(s.Ready, c.address())
		}
		return
	}
	s.Ready = s.Ready[:max(0, len(s.Ready)-step)]
}

// change does in turn what Deployments do: an endpoint more, one that is not ready, one less, one that is ready again.
func (c *Churn) change(s *Service, n int) {
	switch round := n / len(c.services) % 4; {
	case round == 0:
		s.Ready = append(s.Ready, c.address())
	case round == 1 && len(s.Ready) > 0:
		s.Ready, s.NotReady = s.Ready[1:], append(s.NotReady, s.Ready[0])
	case round == 2 && len(s.Ready) > 0:
		s.Ready = s.Ready[1:]
	case len(s.NotReady) > 0:
		s.Ready, s.NotReady = append(s.Ready, s.NotReady...), nil
	}
}

// address is one that no endpoint has had for long.
func (c *Churn) address() string {
	c.next++
	return podAddress(c.next % 60000)
}
