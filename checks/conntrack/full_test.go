package conntrack_test

import (
	"testing"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/host/hosttest"
)

// conntrackNode returns a node with these nf_conntrack parameters; an empty value means absent.
func conntrackNode(count, most, buckets string) *hosttest.Machine {
	m := &hosttest.Machine{Files: map[string]string{}}
	for name, value := range map[string]string{"count": count, "max": most, "buckets": buckets} {
		if value != "" {
			m.Sysctl("net/netfilter/nf_conntrack_"+name, value)
		}
	}
	return m
}

func TestConntrackTable(t *testing.T) {
	checkstest.Run(t, []checkstest.Case{
		{What: "81 %", Problem: "conntrack.headroom", Node: conntrackNode("81000", "100000", ""), Want: `
warn
want: at most 80 % of the table
got: 81 % of the table
evidence: /proc/sys/net/netfilter/nf_conntrack_count: 81000 of 100000` + "\nremedy: run `sysctl -w net.netfilter.nf_conntrack_max=200000`, add it to the policy, and run `conntrack -L` to see which connections fill the table"},
		{What: "80 %", Problem: "conntrack.headroom", Node: conntrackNode("80000", "100000", ""), Want: `
pass
want: at most 80 % of the table
got: 80 % of the table
evidence: /proc/sys/net/netfilter/nf_conntrack_count: 80000 of 100000`},
		{What: "96 %", Problem: "conntrack.headroom", Node: conntrackNode("96000", "100000", ""), Policy: `check "conntrack.full" {}`, Want: `
warn
want: at most 80 % of the table
got: 96 % of the table
because: conntrack.full
evidence: /proc/sys/net/netfilter/nf_conntrack_count: 96000 of 100000` + "\nremedy: run `sysctl -w net.netfilter.nf_conntrack_max=200000`, add it to the policy, and run `conntrack -L` to see which connections fill the table"},
		{What: "not loaded", Problem: "conntrack.headroom", Node: conntrackNode("", "", ""), Want: `
skipped
skipped: nf_conntrack is not loaded: nothing is tracked`},
		{What: "96 %", Problem: "conntrack.full", Node: conntrackNode("96000", "100000", ""), Want: `
fail
want: at most 95 % of the table
got: 96 % of the table
evidence: /proc/sys/net/netfilter/nf_conntrack_count: 96000 of 100000` + "\nremedy: run `sysctl -w net.netfilter.nf_conntrack_max=200000`, add it to the policy, and run `conntrack -L` to see which connections fill the table"},
		{What: "96 %, with few buckets", Problem: "conntrack.full", Node: conntrackNode("96000", "100000", "25000"), Want: `
fail
want: at most 95 % of the table
got: 96 % of the table
evidence: /proc/sys/net/netfilter/nf_conntrack_count: 96000 of 100000` + "\nremedy: run `sysctl -w net.netfilter.nf_conntrack_max=200000 " +
			"net.netfilter.nf_conntrack_buckets=57344`, add it to the policy, and run `conntrack -L` to see which connections fill the table"},
		{What: "95 %", Problem: "conntrack.full", Node: conntrackNode("95000", "100000", ""), Want: `
pass
want: at most 95 % of the table
got: 95 % of the table
evidence: /proc/sys/net/netfilter/nf_conntrack_count: 95000 of 100000`},
		{What: "no limit", Problem: "conntrack.full", Node: conntrackNode("95000", "0", ""), Want: `
pass
want: at most 95 % of the table
got: no limit
evidence: /proc/sys/net/netfilter/nf_conntrack_count: 95000 of 0`},
		{What: "not loaded", Problem: "conntrack.full", Node: conntrackNode("", "", ""), Want: `
skipped
skipped: nf_conntrack is not loaded: nothing is tracked`},
		{What: "too small", Problem: "conntrack.hashsize", Stage: checks.Run, Node: conntrackNode("1", "1048576", "65536"), Want: "\n" +
			"warn\nwant: at least a quarter of nf_conntrack_max\ngot: 65536 buckets for 1048576 entries\nevidence: " +
			"/proc/sys/net/netfilter/nf_conntrack_buckets: 65536\nevidence: /proc/sys/net/netfilter/nf_conntrack_max: 1048576\nremedy: run " +
			"`sysctl -w net.netfilter.nf_conntrack_buckets=262144` and write `options nf_conntrack hashsize=262144` to " +
			"/etc/modprobe.d/nf_conntrack.conf"},
		{What: "large enough", Problem: "conntrack.hashsize", Node: conntrackNode("1", "262144", "65536"), Want: `
pass
want: at least a quarter of nf_conntrack_max
got: 65536 buckets for 262144 entries
evidence: /proc/sys/net/netfilter/nf_conntrack_buckets: 65536
evidence: /proc/sys/net/netfilter/nf_conntrack_max: 262144`},
		{What: "not loaded", Problem: "conntrack.hashsize", Stage: checks.Run, Node: conntrackNode("", "", ""), Want: `
skipped
skipped: nf_conntrack is not loaded: nothing is tracked`},
		{What: "not a number", Problem: "conntrack.hashsize", Node: conntrackNode("1", "many", "65536"), Want: `
unknown
error: reading net.netfilter.nf_conntrack_max: strconv.ParseUint: parsing "many": invalid syntax`},
	})
}
