package conntrack_test

import (
	"syscall"
	"testing"

	"nodegate/checks/checkstest"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
)

func TestLosses(t *testing.T) {
	const (
		header = "entries  found invalid insert insert_failed drop early_drop\n"
		quiet  = header + "00000010  00000000 00000000 00000000 00000000 00000000 00000000\n"
		past   = header +
			"00000010  00000000 00000000 00000000 0000000a 00000000 00000001\n00000010  00000000 00000000 00000000 00000010 00000000 00000000\n"
		more = header +
			"00000010  00000000 00000000 00000000 0000000a 00000000 00000002\n00000010  00000000 00000000 00000000 00000014 00000000 00000000\n"
		full = header +
			"00000010  00000000 00000000 00000000 0000000a 00000005 00000001\n00000010  00000000 00000000 00000000 00000010 00000000 00000000\n"
		stat = "/proc/net/stat/nf_conntrack"

		snmp      = "/proc/net/snmp"
		udpHeader = "Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors\n"
	)
	node := func(name, text string) *hosttest.Machine {
		return &hosttest.Machine{Files: map[string]string{name: text}}
	}
	then := func(name, text string) func(*host.Host) {
		return func(h *host.Host) { h.Files = &checkstest.SecondRead{Files: h.Files, Name: name, Then: text} }
	}
	checkstest.Run(t, []checkstest.Case{
		{What: "races and a full table", Problem: "conntrack.losses", Node: node(stat, past), Host: then(stat, more), Want: `
warn
want: no loss now
got: rising: insert_failed, early_drop
evidence: /proc/net/stat/nf_conntrack: insert_failed 30, 4 more in 100 ms
evidence: /proc/net/stat/nf_conntrack: drop 0
evidence: /proc/net/stat/nf_conntrack: early_drop 2, 1 more in 100 ms` + "\nremedy: run NodeLocal DNSCache, or add single-request-reopen or use-vc to the options in resolv.conf; raise net.netfilter.nf_conntrack_max, and run `conntrack -L` to see which connections fill the table"},
		{What: "a full table", Problem: "conntrack.losses", Node: node(stat, past), Host: then(stat, full), Want: `
warn
want: no loss now
got: rising: drop
evidence: /proc/net/stat/nf_conntrack: insert_failed 26
evidence: /proc/net/stat/nf_conntrack: drop 5, 5 more in 100 ms
evidence: /proc/net/stat/nf_conntrack: early_drop 1` + "\nremedy: raise net.netfilter.nf_conntrack_max, and run `conntrack -L` to see which connections fill the table"},
		{What: "in the past", Problem: "conntrack.losses", Node: node(stat, past), Want: `
pass
want: no loss now
got: no loss now
evidence: /proc/net/stat/nf_conntrack: insert_failed 26
evidence: /proc/net/stat/nf_conntrack: drop 0
evidence: /proc/net/stat/nf_conntrack: early_drop 1`},
		{What: "never: no second read", Problem: "conntrack.losses", Node: node(stat, quiet), Host: then(stat, more), Want: `
pass
want: no loss now
got: no loss now
evidence: /proc/net/stat/nf_conntrack: insert_failed 0
evidence: /proc/net/stat/nf_conntrack: drop 0
evidence: /proc/net/stat/nf_conntrack: early_drop 0`},
		{What: "not loaded", Problem: "conntrack.losses", Node: node("/x", ""), Want: `
skipped
skipped: nf_conntrack is not loaded: nothing is tracked`},
		{What: "loaded, in a kernel without the file and nf_conntrack_netlink", Problem: "conntrack.losses",
			Node: node("/proc/sys/net/netfilter/nf_conntrack_count", "12"), Want: `
skipped
skipped: this kernel does not export its counters: CONFIG_NF_CONNTRACK_PROCFS is off`},
		{What: "count unreadable", Problem: "conntrack.losses", Node: &hosttest.Machine{Refuse: map[string]error{
			"r /proc/sys/net/netfilter/nf_conntrack_count": syscall.EACCES}}, Want: `
skipped
skipped: nf_conntrack is not loaded, or this kernel does not export its counters: CONFIG_NF_CONNTRACK_PROCFS is off`},
		{What: "another format", Problem: "conntrack.losses", Node: node(stat, "entries\n00000001\n"), Want: `
unknown
error: /proc/net/stat/nf_conntrack lacks the column insert_failed`},
		{What: "rising", Problem: "udp.checksum-errors", Node: node(snmp, udpHeader+"Udp: 282 0 3 283 0 0 3\n"),
			Host: then(snmp, udpHeader+"Udp: 282 0 9 283 0 0 9\n"), Want: `
warn
want: no wrong checksums now
got: InCsumErrors rising
evidence: /proc/net/snmp: Udp InCsumErrors 9, 6 more in 100 ms` + "\nremedy: run `dmesg | grep 'UDP: bad checksum'` to find the sender, then `nodegate check --stage run` there (vxlan.checksum)"},
		{What: "in the past", Problem: "udp.checksum-errors", Node: node(snmp, udpHeader+"Udp: 282 0 3 283 0 0 3\n"), Want: `
pass
want: no wrong checksums now
got: no wrong checksums now
evidence: /proc/net/snmp: Udp InCsumErrors 3`},
		{What: "never", Problem: "udp.checksum-errors", Node: node(snmp, udpHeader+"Udp: 282 0 3 283 0 0 0\n"), Want: `
pass
want: no wrong checksums now
got: no wrong checksums now
evidence: /proc/net/snmp: Udp InCsumErrors 0`},
		{What: "old kernel", Problem: "udp.checksum-errors", Node: node(snmp, "Udp: InDatagrams\nUdp: 3\n"), Want: `
unknown
error: /proc/net/snmp: no counter InCsumErrors in this kernel`},
	})
}
