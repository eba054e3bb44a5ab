package checks

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"

	"nodegate/internal/host"
	"nodegate/policy"
)

const (
	refConntrack    = "https://www.kernel.org/doc/html/latest/networking/nf_conntrack-sysctl.html"
	remedyConntrack = "raise net.netfilter.nf_conntrack_max (and hashsize to a quarter of it), shorten nf_conntrack_tcp_timeout_established, or find who opens the connections: conntrack -L"
	costConntrack   = "An entry takes about 300 bytes of kernel memory, a million 300 MB."
)

// conntrackHeadroom: 80 % warns early enough to act.
func conntrackHeadroom() Problem {
	return Problem{
		Name: "conntrack.headroom", Stages: []Stage{Run}, Severity: policy.Warn,
		Detects:  "The table of tracked connections is over 80 % full.",
		Symptom:  "None yet; when it is full, new connections are dropped and the kernel logs \"nf_conntrack: table full, dropping packet\".",
		How:      "net.netfilter.nf_conntrack_count is over 80 % of net.netfilter.nf_conntrack_max (conntrack.full takes over at 95 %).",
		Remedy:   remedyConntrack,
		TradeOff: costConntrack,
		Ref:      refConntrack,
		Inspect: func(_ context.Context, h *host.Host, _ *policy.Policy) (State, error) {
			return inspectConntrackCount(h, 80, "conntrack.full")
		},
	}
}

// conntrackFull: at 95 % the next burst is dropped.
func conntrackFull() Problem {
	return Problem{
		Name: "conntrack.full", Stages: []Stage{Run}, Severity: policy.Block,
		Detects:  "The table of tracked connections is over 95 % full.",
		Symptom:  "New connections time out at random while old ones work; the kernel logs \"nf_conntrack: table full, dropping packet\".",
		How:      "net.netfilter.nf_conntrack_count is over 95 % of net.netfilter.nf_conntrack_max.",
		Remedy:   remedyConntrack,
		TradeOff: costConntrack,
		Ref:      refConntrack,
		Inspect: func(_ context.Context, h *host.Host, _ *policy.Policy) (State, error) {
			return inspectConntrackCount(h, 95, "sysctl.net.netfilter.nf_conntrack_max")
		},
	}
}

func inspectConntrackCount(h *host.Host, percent uint64, cause string) (State, error) {
	s := State{Want: fmt.Sprintf("at most %d %% of the table", percent)}
	count, err := conntrackNumber(h, "count")
	if errors.Is(err, fs.ErrNotExist) {
		s.Skip = noConntrack
		return s, nil
	}
	if err != nil {
		return s, err
	}
	most, err := conntrackNumber(h, "max")
	if err != nil {
		return s, err
	}
	s.Evidence = []Evidence{{"/proc/sys/net/netfilter/nf_conntrack_count", fmt.Sprintf("%d of %d", count, most)}}
	if most == 0 {
		s.Got, s.Pass = "no limit", true
		return s, nil
	}
	s.Got, s.Pass = fmt.Sprintf("%d %% of the table", count*100/most), count*100 <= percent*most
	if !s.Pass {
		s.Cause = cause
		s.Remedy = fmt.Sprintf("run: sysctl -w net.netfilter.nf_conntrack_max=%d; and see what fills the table: conntrack -L", 2*most)
	}
	return s, nil
}

// conntrackNumber is one of nf_conntrack's numbers. fs.ErrNotExist: nf_conntrack
// is not loaded.
func conntrackNumber(h *host.Host, name string) (uint64, error) {
	text, err := h.ReadSysctl("net/netfilter/nf_conntrack_" + name)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(text, 10, 32) // the kernel keeps them in 32 bits
	if err != nil {
		return 0, fmt.Errorf("reading net.netfilter.nf_conntrack_%s: %w", name, err)
	}
	return n, nil
}
