package conntrack

import (
	"context"
	"fmt"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// conntrackFull detects a table over 95 % full: the next burst of connections is dropped.
func conntrackFull() checks.Problem {
	return checks.Problem{
		Name: "conntrack.full", Stages: []checks.Stage{checks.Run}, Severity: policy.Block,
		Detects:  "The connection tracking table is over 95 % full.",
		Symptom:  "New connections time out at random while existing ones work; the kernel logs \"nf_conntrack: table full, dropping packet\".",
		How:      "net.netfilter.nf_conntrack_count is over 95 % of net.netfilter.nf_conntrack_max.",
		Remedy:   remedyConntrack,
		TradeOff: costConntrack,
		Ref:      refConntrack,
		Inspect: func(_ context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
			return inspectConntrackCount(h, 95, "sysctl.net.netfilter.nf_conntrack_max")
		},
	}
}

func inspectConntrackCount(h *host.Host, percent uint64, cause string) (checks.State, error) {
	s := checks.State{Want: fmt.Sprintf("at most %d %% of the table", percent)}
	count, err := conntrackNumber(h, "count")
	if err != nil {
		return skipIfNotLoaded(s, err)
	}
	most, err := conntrackNumber(h, "max")
	if err != nil {
		return s, err
	}
	s.Evidence = []checks.Evidence{checks.Seen("/proc/sys/net/netfilter/nf_conntrack_count", fmt.Sprintf("%d of %d", count, most))}
	if most == 0 {
		s.Got, s.Pass = "no limit", true
		return s, nil
	}
	s.Got, s.Pass = fmt.Sprintf("%d %% of the table", count*100/most), count*100 <= percent*most
	if !s.Pass {
		s.Cause = cause
		larger := fmt.Sprintf("net.netfilter.nf_conntrack_max=%d", 2*most)
		if buckets, err := conntrackNumber(h, "buckets"); err == nil && buckets < most/2 { // conntrack.hashsize would fail then
			larger += fmt.Sprintf(" net.netfilter.nf_conntrack_buckets=%d", bucketsFor(2*most))
		}
		s.Remedy = "run `sysctl -w " + larger + "`, add it to the policy, and run `conntrack -L` to see which connections fill the table"
	}
	return s, nil
}

// bucketsFor returns a quarter of the entries, in whole pages of 64 KiB: the kernel rounds up to its page (nf_ct_alloc_hashtable).
func bucketsFor(entries uint64) uint64 { return (entries/4 + 8191) / 8192 * 8192 }

// conntrackNumber reads one of nf_conntrack's numeric parameters. It returns fs.ErrNotExist if nf_conntrack is not loaded.
func conntrackNumber(h *host.Host, name string) (uint64, error) {
	return h.SysctlNumber("net/netfilter/nf_conntrack_" + name)
}
