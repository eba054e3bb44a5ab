package links_test

import (
	"context"
	"fmt"
	"io/fs"
	"testing"

	"nodegate/checks/checkstest"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
)

func TestENAAllowance(t *testing.T) {
	node := func(pps uint64) *hosttest.Machine {
		return &hosttest.Machine{Links: map[string]*hosttest.Link{
			"lo":   {},
			"ens5": {Driver: "ena", Stats: map[string]uint64{"pps_allowance_exceeded": pps, "bw_in_allowance_exceeded": 0, "tx_timeout": 3}},
		}}
	}
	rising := node(7)
	checkstest.Run(t, []checkstest.Case{
		{What: "exceeded once", Problem: "ena.allowance", Node: node(34), Want: `
warn
want: 0
got: ens5 pps_allowance_exceeded=34
evidence: ethtool -S ens5: pps_allowance_exceeded=34
remedy: use a larger instance type; for linklocal (1024 packets a second to DNS, IMDS and NTP) run NodeLocal DNSCache; for conntrack reduce the number of tracked connections`},
		{What: "exceeded now", Problem: "ena.allowance", Node: rising,
			Host: func(h *host.Host) { h.Links = &risingStats{Links: h.Links} }, Want: `
warn
want: 0
got: ens5 pps_allowance_exceeded=8 rising
evidence: ethtool -S ens5: pps_allowance_exceeded=8 rising
remedy: use a larger instance type; for linklocal (1024 packets a second to DNS, IMDS and NTP) run NodeLocal DNSCache; for conntrack reduce the number of tracked connections`},
		{What: "never", Problem: "ena.allowance", Node: node(0), Want: `
pass
want: 0
got: 0
evidence: ethtool -S ens5: every *_allowance_exceeded counter is 0 or missing`},
		{What: "removed before its counters are read", Problem: "ena.allowance", Node: node(34),
			Host: func(h *host.Host) { h.Links = &goneAfter{h.Links, 0} }, Want: `
skipped
skipped: no link uses the ena driver`},
		{What: "removed between the reads", Problem: "ena.allowance", Node: node(34),
			Host: func(h *host.Host) { h.Links = &goneAfter{h.Links, 1} }, Want: `
skipped
skipped: no link uses the ena driver`},
		{What: "another driver", Problem: "ena.allowance",
			Node: &hosttest.Machine{Links: map[string]*hosttest.Link{"eth0": {Driver: "virtio_net"}}}, Want: `
skipped
skipped: no link uses the ena driver`},
	})
}

// risingStats wraps links whose allowance counter is one higher at every read.
type risingStats struct {
	host.Links
	reads uint64
}

func (r *risingStats) Stats(ctx context.Context, link string) (map[string]uint64, error) {
	stats, err := r.Links.Stats(ctx, link)
	if err != nil {
		return nil, err
	}
	answer := map[string]uint64{}
	for name, n := range stats {
		if n > 0 {
			n += r.reads
		}
		answer[name] = n
	}
	r.reads++
	return answer, nil
}

// goneAfter wraps links that are removed after this many reads of their counters.
type goneAfter struct {
	host.Links
	reads int
}

func (g *goneAfter) Stats(ctx context.Context, link string) (map[string]uint64, error) {
	if g.reads--; g.reads < 0 {
		return nil, fmt.Errorf("reading statistics of %s: %w", link, fs.ErrNotExist)
	}
	return g.Links.Stats(ctx, link)
}
