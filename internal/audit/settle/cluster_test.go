package settle_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"nodegate/internal/audit/proxy"
	"nodegate/internal/audit/settle"
	"nodegate/internal/require"
	"nodegate/internal/ruleset"
	"nodegate/internal/verdict"
)

// cluster simulates an API server, a kube-proxy and a node. The state of a Service is its endpoints
// and its other fields. log contains every version of the states, in order.
type cluster struct {
	*rand.Rand
	began   time.Time
	names   []string
	log     []event
	rules   map[string]string // rules that kube-proxy has written
	applied int               // number of versions in rules
	stale   map[string]bool   // Services whose rules kube-proxy does not repair
	dead    bool              // kube-proxy has stopped working
	next    int               // the next new endpoint
	hot     bool              // one Service changes continuously, faster than kube-proxy writes
	lagged  time.Duration     // maximum delay of kube-proxy's syncs and of the watch
	live    proxy.Live
	shadow  map[string]string // current state of the API
	ipvs    bool              // IPVS mode
	spent   time.Duration     // time spent on reading the rules
}

// event is a version of one Service: its endpoints and a kind, as in "1,5 3", or "gone".
type event struct {
	service, state string
	at             time.Time
}

func newCluster(r *rand.Rand) *cluster {
	c := &cluster{Rand: r, began: time.Now(), rules: map[string]string{}, stale: map[string]bool{}, shadow: map[string]string{},
		lagged: time.Duration(1+r.IntN(3000)) * time.Millisecond}
	for i := range 2 + r.IntN(6) {
		c.names = append(c.names, fmt.Sprintf("default/s%d", i))
		c.put(c.names[i], c.endpoint()+","+c.endpoint()+" 0")
	}
	c.rules, c.applied = c.state(len(c.log)), len(c.log)
	return c
}

func (c *cluster) endpoint() string { c.next++; return fmt.Sprint(c.next) }

func (c *cluster) put(service, state string) {
	c.log = append(c.log, event{service, state, time.Now()})
	c.shadow[service] = state
}

// state returns the state of the API after n versions.
func (c *cluster) state(n int) map[string]string {
	s := map[string]string{}
	for _, e := range c.log[:n] {
		s[e.service] = e.state
	}
	return s
}

// change adds a version: one more endpoint, one less, none, the Service deleted or restored, or
// another field changed.
func (c *cluster) change() {
	service := c.names[c.IntN(len(c.names))]
	if c.hot {
		service = c.names[0]
	}
	now := c.shadow[service]
	_, number, _ := strings.Cut(now, " ")
	list, _ := parts(now)
	switch k := c.IntN(14); {
	case now == "gone" || k < 4:
		list = append(list, c.endpoint())
	case k == 4:
		c.put(service, "gone")
		return
	case k == 5:
		list = nil
	case k < 10 && len(list) > 0:
		list = list[1:]
	case k >= 10:
		number = strconv.Itoa(c.IntN(len(kinds()) - 1))
	}
	c.put(service, strings.Join(list, ",")+" "+number)
}

// audit runs one audit while the cluster changes.
func (c *cluster) audit(t *testing.T) settle.Outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	every := time.Duration(20+c.IntN(1000)) * time.Millisecond
	if c.hot = c.IntN(4) == 0; c.hot {
		every = 30 * time.Millisecond
	}
	go c.churn(ctx, every)
	go c.proxy(ctx)
	time.Sleep(time.Duration(c.IntN(5000)) * time.Millisecond)
	switch c.IntN(4) {
	case 0: // a rule restored manually: an endpoint that will never exist again
		service := c.names[c.IntN(len(c.names))]
		c.stale[service] = true
		c.rules[service] = "99999"
	case 1: // kube-proxy stops, then every Service changes to a state that it never had
		c.dead = true
		for _, service := range c.names {
			c.stale[service] = true
			list, number, _ := strings.Cut(c.rules[service], " ")
			c.rules[service] = list + ",99999 " + number
		}
	}
	time.Sleep(time.Duration(c.IntN(500)) * time.Millisecond)
	c.began = time.Now()
	versions, err := c.List(ctx, false)
	require.NoError(t, err)
	out, err := settle.Run(ctx, c, c, versions, settle.Options{Settle: settleTime})
	require.NoError(t, err)
	return out
}

// churn changes the API repeatedly.
func (c *cluster) churn(ctx context.Context, every time.Duration) {
	for ctx.Err() == nil {
		c.change()
		sleep(ctx, time.Duration(c.Int64N(int64(2*every)))+1)
	}
}

// proxy writes the versions that it has received, with delays.
func (c *cluster) proxy(ctx context.Context) {
	for ctx.Err() == nil && !c.dead {
		heard := c.heard(c.lagged / 2)
		sleep(ctx, time.Duration(c.Int64N(int64(c.lagged))))
		if c.dead || heard < c.applied {
			continue
		}
		c.applied = heard
		for service, state := range c.state(heard) {
			if !c.stale[service] {
				c.rules[service] = state
			}
		}
	}
}

// heard returns the number of versions known to a watcher with the given lag.
func (c *cluster) heard(lag time.Duration) int {
	known := time.Now().Add(-time.Duration(c.Int64N(int64(lag) + 1)))
	n := 0
	for n < len(c.log) && (n < len(c.names) || !c.log[n].at.After(known)) {
		n++
	}
	return n
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// Rules reads the Services one after the other while kube-proxy writes. Sometimes a reading is
// torn.
func (c *cluster) Rules(ctx context.Context) (proxy.Judgment, error) {
	began := time.Now()
	defer func() { c.spent += time.Since(began) }()
	rep := proxy.Judgment{Mode: "iptables", Version: proxy.VersionRange{Min: 31, Max: 36}, Families: map[string]bool{"ip": true},
		NodePorts: map[string]bool{"ip": true}}
	c.live = proxy.Live{}
	virtual := &ruleset.IPVS{}
	for i, name := range c.names {
		sleep(ctx, time.Duration(c.IntN(100))*time.Millisecond)
		if ctx.Err() != nil {
			return rep, ctx.Err()
		}
		if c.rules[name] == "gone" {
			continue
		}
		s := proxy.Service{Name: name, Family: "ip", Protocol: "tcp", ClusterIP: fmt.Sprintf("10.96.0.%d", i+1), Port: 80}
		endpoints, k := parts(c.rules[name])
		for _, e := range endpoints {
			s.Endpoints = append(s.Endpoints, proxy.Endpoint{Address: address(e) + ":80"})
		}
		if c.ipvs {
			virtual.Servers = append(virtual.Servers, c.virtualServers(i, endpoints, k)...)
			continue
		}
		if k.vip != "" {
			s.LoadBalancerIPs = []string{k.vip}
		}
		if k.policy != "" {
			s.NodePort = 30080 + i
		}
		if len(endpoints) == 0 {
			s.Blocked = "reject"
		} else {
			s.AffinitySeconds, s.ExternalLocal = k.affinity, k.policy == "Local"
			s.SourceRanges = strings.Fields(k.ranges)
		}
		rep.Services = append(rep.Services, s)
		if !c.stale[name] && c.IntN(40) == 0 {
			rep.Findings = append(rep.Findings, proxy.Finding{Name: "kubeproxy.chain.damaged", Service: name, Family: "ip",
				Verdict: verdict.Fail})
		}
	}
	if c.ipvs {
		rep = judgeIPVS(virtual)
	}
	return rep, nil
}

func address(endpoint string) string {
	n, _ := strconv.Atoi(endpoint)
	return netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}).String()
}

func (c *cluster) Live() proxy.Live { return c.live }

// Writer returns one of many short syncs.
func (c *cluster) Writer() settle.Writer {
	const takes = 300 * time.Millisecond
	took := time.Since(c.began)
	return settle.Writer{PID: 1 + int(took/takes), Runs: took % takes, Used: took % takes}
}

// Written returns no data.
func (c *cluster) Written() map[string]settle.Written { return nil }

func (c *cluster) Proxy(context.Context) []proxy.Finding { return nil }

// List returns an old state from a cache or the latest one.
func (c *cluster) List(_ context.Context, latest bool) (*proxy.Versions, error) {
	n := len(c.log)
	if !latest {
		n = c.heard(2 * time.Second)
	}
	var services, slices []string
	for service, state := range c.state(n) {
		if state != "gone" {
			services = append(services, c.service(service, state))
		}
		slices = append(slices, c.slice(service, state))
	}
	v := proxy.NewVersions()
	list := `{"metadata": {"resourceVersion": "%d"}, "items": [%s]}`
	var err, err2 error
	v.Services, err = proxy.LoadServices(strings.NewReader(fmt.Sprintf(list, n, strings.Join(services, ","))))
	v.Endpoints, err2 = proxy.LoadEndpointSlices(strings.NewReader(fmt.Sprintf(list, n, strings.Join(slices, ","))))
	return v, errors.Join(err, err2)
}

// Follow sends every version since the list, in order and with a delay.
func (c *cluster) Follow(ctx context.Context, from *proxy.Versions, send func(proxy.Event)) error {
	var n int
	if _, err := fmt.Sscan(from.Services.Version, &n); err != nil {
		return err
	}
	before := c.state(n)
	for ; ctx.Err() == nil; sleep(ctx, time.Duration(1+c.IntN(200))*time.Millisecond) {
		for upTo := c.heard(500 * time.Millisecond); n < upTo; n++ {
			e := c.log[n]
			slice, err := proxy.SliceChange([]byte(c.slice(e.service, e.state)), false)
			service, err2 := proxy.ServiceChange([]byte(c.service(e.service, e.state)), e.state == "gone")
			if err := errors.Join(err, err2); err != nil {
				return err
			}
			send(slice)
			if (before[e.service] == "gone") != (e.state == "gone") || c.service(e.service, before[e.service]) != c.service(e.service, e.state) {
				send(service)
			}
			before[e.service] = e.state
		}
	}
	return nil
}
