package conntrack

import (
	"context"
	"fmt"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// conntrackHashsize: a table that grew while its hash did not is slow.
func conntrackHashsize() checks.Problem {
	return checks.Problem{
		Name: "conntrack.hashsize", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Warn,
		Detects:  "The hash of tracked connections has too few buckets for the table's size.",
		Symptom:  "ksoftirqd takes CPU and packets take longer as the number of connections grows: every look-up walks a long chain.",
		How:      "net.netfilter.nf_conntrack_buckets is below a quarter of net.netfilter.nf_conntrack_max, the ratio that kube-proxy keeps to.",
		Remedy:   "write nf_conntrack_max/4 to /sys/module/nf_conntrack/parameters/hashsize, and to modprobe.d: options nf_conntrack hashsize=N",
		TradeOff: "A bucket takes 8 bytes, and changing the size hashes every entry again.",
		Ref:      refConntrack,
		Inspect:  inspectHashsize,
	}
}

func inspectHashsize(_ context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.State{Want: "at least a quarter of nf_conntrack_max"}
	buckets, err := conntrackNumber(h, "buckets")
	if err != nil {
		return unread(s, err)
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
		s.Remedy = fmt.Sprintf("run: echo %d > /sys/module/nf_conntrack/parameters/hashsize; and write `options nf_conntrack hashsize=%d` to "+
			"/etc/modprobe.d/nf_conntrack.conf", most/4, most/4)
	}
	return s, nil
}
