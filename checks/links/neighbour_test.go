package links_test

import (
	"fmt"
	"testing"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
)

func TestNeighbourTable(t *testing.T) {
	table := func(arp, ndisc string) *hosttest.Machine {
		files := map[string]string{}
		for name, rows := range map[string]string{"arp_cache": arp, "ndisc_cache": ndisc} {
			if rows != "" {
				files["/proc/net/stat/"+name] = checkstest.NeighbourHeader + rows
			}
		}
		return checkstest.Node(files, map[string]string{"net/ipv4/neigh/default/gc_thresh3": "1024", "net/ipv6/neigh/default/gc_thresh3": "1024"})
	}
	row := func(entries, full string) string {
		return entries + " 0000 0000 0000 0000 0000 0000 0000 0000 0000 0000 0000 " + full + "\n"
	}
	flannel := func(m *hosttest.Machine, kernel string) *hosttest.Machine {
		m.Kernel = kernel
		for i := range 1000 {
			gateway := fmt.Sprintf("10.244.%d.%d", i/256, i%256)
			m.Hops = append(m.Hops, host.Hop{Link: "flannel.1", Gateway: gateway, MAC: "02:00:00:00:00:01", Remote: "192.0.2.1"})
		}
		m.Hops = append(m.Hops, host.Hop{Link: "flannel.1", Gateway: "10.244.255.0"}) // its node is down
		return m
	}
	checkstest.RunOne(t, "neighbour.table", checks.Run, []checkstest.Case{
		{What: "a container as a node", Node: table("", ""), Want: `skipped
skipped: the kernel shows the table in its first network namespace only, and this node is in another`},
		{What: "nearly full", Node: table(row("00000340", "00000000")+row("00000340", "00000000"), row("00000002", "00000000")), Want: `
warn
want: below 80% of gc_thresh3, never full
got: ipv4 832 of 1024; ipv6 2 of 1024
evidence: /proc/net/stat/arp_cache: entries 832, table_fulls 0
evidence: /proc/sys/net/ipv4/neigh/default/gc_thresh3: 1024
evidence: /proc/net/stat/ndisc_cache: entries 2, table_fulls 0
evidence: /proc/sys/net/ipv6/neigh/default/gc_thresh3: 1024
remedy: raise net.ipv4.neigh.default.gc_thresh3 to 4096 or more, and gc_thresh2 to 2048`},
		{What: "was full in the past", Node: table(row("00000010", "00000001")+row("00000010", "0000000a"), ""), Want: `pass
want: below 80% of gc_thresh3, never full
got: ipv4 16 of 1024, full 11 times since boot
evidence: /proc/net/stat/arp_cache: entries 16, table_fulls 11
evidence: /proc/sys/net/ipv4/neigh/default/gc_thresh3: 1024`},
		{What: "overflows now", Node: table(row("00000010", "00000001"), ""), Host: func(h *host.Host) {
			h.Files = &checkstest.SecondRead{Files: h.Files, Name: "/proc/net/stat/arp_cache",
				Then: checkstest.NeighbourHeader + row("00000010", "00000004")}
		}, Want: `warn
want: below 80% of gc_thresh3, never full
got: ipv4 16 of 1024, full 3 times in 100 ms
evidence: /proc/net/stat/arp_cache: entries 16, table_fulls 4
evidence: /proc/sys/net/ipv4/neigh/default/gc_thresh3: 1024
remedy: raise net.ipv4.neigh.default.gc_thresh3 to 4096 or more, and gc_thresh2 to 2048`},
		{What: "enough room", Node: table(row("00000010", "00000000"), row("00000002", "00000000")), Want: `
pass
want: below 80% of gc_thresh3, never full
got: ipv4 16 of 1024; ipv6 2 of 1024
evidence: /proc/net/stat/arp_cache: entries 16, table_fulls 0
evidence: /proc/sys/net/ipv4/neigh/default/gc_thresh3: 1024
evidence: /proc/net/stat/ndisc_cache: entries 2, table_fulls 0
evidence: /proc/sys/net/ipv6/neigh/default/gc_thresh3: 1024`},
		{What: "a cluster of a thousand nodes, with a permanent entry for each", Node: flannel(table(row("00000400", "00000000"), ""), "6.1.0"), Want: `
pass
want: below 80% of gc_thresh3, never full
got: ipv4 24 of 1024
evidence: /proc/net/stat/arp_cache: entries 1024, table_fulls 0
evidence: /proc/sys/net/ipv4/neigh/default/gc_thresh3: 1024`},
		{What: "the same, on a kernel that counts them", Node: flannel(table(row("00000400", "00000000"), ""), "4.19.0"), Want: `
warn
want: below 80% of gc_thresh3, never full
got: ipv4 1024 of 1024
evidence: /proc/net/stat/arp_cache: entries 1024, table_fulls 0
evidence: /proc/sys/net/ipv4/neigh/default/gc_thresh3: 1024
remedy: raise net.ipv4.neigh.default.gc_thresh3 to 4096 or more, and gc_thresh2 to 2048`},
		{What: "a short line", Node: table("00000010 0000\n", ""),
			Want: "unknown\nerror: reading /proc/net/stat/arp_cache: the line \"00000010 0000\" is too short"},
	})
}
