package cluster

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Churn changes Services as a busy cluster does. Endpoints come, go and become not ready; one Service is scaled up from none to many and
// down again; every third change is to other fields of a Service.
type Churn struct {
	Services  int           // number of Services; the first one is scaled
	Endpoints int           // approximate number of endpoints of each other Service
	Scale     int           // maximum number of endpoints of the first Service
	Every     time.Duration // interval between changes

	services []*Service
	changes  atomic.Int64
	next     int // number of the address of the next new endpoint
	scaled   int // direction of scaling: up while positive
}

// Usual returns a churn that issue trackers call ordinary: five changes a second, and a Deployment between 0 and 50 replicas.
func Usual() *Churn {
	return &Churn{Services: 20, Endpoints: 10, Scale: 50, Every: 200 * time.Millisecond}
}

// Prepare creates the Services and their first endpoints.
func (c *Churn) Prepare(ctx context.Context, plane *ControlPlane) error {
	for i := range c.Services {
		s, err := plane.AddService(ctx, fmt.Sprintf("churn-%d", i), "TCP")
		if err != nil {
			return err
		}
		if i > 0 {
			for range c.Endpoints {
				s.Ready = append(s.Ready, c.nextAddress())
			}
		}
		if err := s.Update(ctx); err != nil {
			return err
		}
		c.services = append(c.services, s)
	}
	return nil
}

// Run changes endpoints until the context ends, and then returns nil. It returns the first error earlier.
func (c *Churn) Run(ctx context.Context) error {
	tick := time.NewTicker(c.Every)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := c.makeChange(ctx, n); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		c.changes.Add(1)
	}
}

// makeChange makes the nth change.
func (c *Churn) makeChange(ctx context.Context, n int) error {
	s := c.services[n%len(c.services)]
	update := s.Update
	switch {
	case n%3 == 2:
		update = func(ctx context.Context) error { return s.changeFields(ctx, n/(3*len(c.services))+n%len(c.services)) }
	case s == c.services[0]:
		c.scaleService(s)
	default:
		c.changeEndpoints(s, n)
	}
	if err := update(ctx); err != nil {
		return fmt.Errorf("changing %s: %w", s.Name, err)
	}
	return nil
}

// changeFields changes fields of a Service other than its endpoints, in a way chosen by n. Each Service has its own addresses.
func (s *Service) changeFields(ctx context.Context, n int) error {
	_, digits, _ := strings.Cut(s.Name, "-")
	number, err := strconv.Atoi(digits)
	if err != nil {
		return fmt.Errorf("%s: the name must end in a number: %w", s.Name, err)
	}
	// Addresses come from the range for benchmarks (RFC 2544), 16 thousand for each use.
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

// Changes returns the number of changes that the API has accepted.
func (c *Churn) Changes() int64 { return c.changes.Load() }

// scaleService scales from none to Scale in steps of five, and back.
func (c *Churn) scaleService(s *Service) {
	const step = 5
	if c.scaled++; c.scaled > 2*c.Scale/step {
		c.scaled = 1
	}
	if c.scaled <= c.Scale/step {
		for range step {
			s.Ready = append(s.Ready, c.nextAddress())
		}
		return
	}
	s.Ready = s.Ready[:max(0, len(s.Ready)-step)]
}

// changeEndpoints changes endpoints as Deployments do, in turn: add one, make one not ready, remove one, make one ready again.
func (c *Churn) changeEndpoints(s *Service, n int) {
	switch round := n / len(c.services) % 4; {
	case round == 0:
		s.Ready = append(s.Ready, c.nextAddress())
	case round == 1 && len(s.Ready) > 0:
		s.Ready, s.NotReady = s.Ready[1:], append(s.NotReady, s.Ready[0])
	case round == 2 && len(s.Ready) > 0:
		s.Ready = s.Ready[1:]
	case len(s.NotReady) > 0:
		s.Ready, s.NotReady = append(s.Ready, s.NotReady...), nil
	}
}

// nextAddress returns an address that no endpoint has used for a long time.
func (c *Churn) nextAddress() string {
	c.next++
	return podAddress(c.next % 60000)
}
