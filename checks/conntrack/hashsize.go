package conntrack

import (
	"context"
	"fmt"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// conntrackHashsize detects a hash that is too small for its table, which slows down every look-up.
func conntrackHashsize() checks.Problem {
	return checks.Problem{
		Name: "conntrack.hashsize", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Warn,
		Detects: "The connection tracking hash has too few buckets for the size of the table.",
		Symptom: "ksoftirqd uses more CPU and packets take longer as the number of connections grows, because every look-up walks a long chain.",
		How:     "net.netfilter.nf_conntrack_buckets is below a quarter of net.netfilter.nf_conntrack_max, the ratio that kube-proxy maintains.",
		Remedy: "set net.netfilter.nf_conntrack_buckets to a quarter of nf_conntrack_max, and write `options " +
			"nf_conntrack hashsize=N` to a file in /etc/modprobe.d",
		TradeOff: "A bucket takes 8 bytes, and a change of the size rehashes every entry.",
		Ref:      refConntrack,
		Inspect:  inspectHashsize,
	}
}

func inspectHashsize(_ context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.State{Want: "at least a quarter of nf_conntrack_max"}
	buckets, err := conntrackNumber(h, "buckets")
	if err != nil {
		return skipIfNotLoaded(s, err)
	}
	most, err := conntrackNumber(h, "max")
	if err != nil {
		return s, err
	}
	s.Got = fmt.Sprintf("%d buckets for %d entries", buckets, most)
	s.Evidence = []checks.Evidence{
		checks.Seen("/proc/sys/net/netfilter/nf_conntrack_buckets", fmt.Sprint(buckets)),
		checks.Seen("/proc/sys/net/netfilter/nf_conntrack_max", fmt.Sprint(most)),
	}
	s.Pass = buckets >= most/4
	if !s.Pass {
		s.Remedy = fmt.Sprintf("run `sysctl -w net.netfilter.nf_conntrack_buckets=%d` and write `options nf_conntrack hashsize=%[1]d` to "+
			"/etc/modprobe.d/nf_conntrack.conf", bucketsFor(most))
	}
	return s, nil
}
