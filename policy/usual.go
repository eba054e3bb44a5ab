package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// usual is the range in which a parameter does no harm to a node of a cluster. The kernel accepts more.
type usual struct {
	key       Key
	low, high int64 // of each number in the value; high 0 is no bound
	unit, why string
}

// usuals returns the ranges, except those that checkMemory knows, each much wider than any recommendation: a value outside is a
// mistake of unit or of sign. Sources: docs.kernel.org/networking/ip-sysctl.html and nf_conntrack-sysctl.html,
// docs.kernel.org/admin-guide/sysctl, and the limits that learn.microsoft.com/azure/aks/custom-node-configuration publishes.
func usuals() []usual {
	const refused, opens = "connections are refused or dropped", "programs fail with \"too many open files\" or \"no space left on device\""
	return []usual{
		{"fs/aio-max-nr", 65536, 0, "requests", "databases do not start"},
		{"fs/inotify/max_user_instances", 128, 0, "instances", opens},
		{"fs/inotify/max_user_watches", 8192, 0, "watches", opens},
		{"kernel/panic", -1, 3600, "seconds", "a node that panicked stays down so long"},
		{"net/core/netdev_max_backlog", 300, 0, "packets", "received packets are dropped"},
		{"net/core/rmem_max", 65536, 0, "bytes", "connections are slow"},
		{"net/core/somaxconn", 128, 0, "connections", refused},
		{"net/core/wmem_max", 65536, 0, "bytes", "connections are slow"},
		{"net/ipv4/ip_forward", 1, 0, "", "the node drops every packet between its Pods and other machines"},
		{"net/ipv4/neigh/default/gc_thresh3", 512, 0, "entries", "packets to new neighbours are dropped"},
		{"net/ipv4/tcp_fin_timeout", 1, 300, "seconds", "closed connections stay for longer than any peer waits"},
		{"net/ipv4/tcp_keepalive_intvl", 1, 3600, "seconds", "a dead peer is found too late"},
		{"net/ipv4/tcp_keepalive_probes", 1, 50, "probes", "a dead peer is found too late, or a live one is given up"},
		{"net/ipv4/tcp_keepalive_time", 10, 432000, "seconds", "a dead peer is found too late, or every connection sends probes"},
		{"net/ipv4/tcp_max_orphans", 1024, 0, "sockets", "connections are reset"},
		{"net/ipv4/tcp_max_syn_backlog", 128, 0, "connections", refused},
		{"net/ipv4/tcp_mem", 4096, 0, "pages", "all TCP of the node has so little memory that connections are reset"},
		{"net/ipv4/tcp_retries2", 3, 100, "tries", "connections end at a short loss, or never"},
		{"net/ipv4/tcp_syn_retries", 1, 30, "tries", "connections fail at the loss of one packet, or never"},
		{"net/ipv6/neigh/default/gc_thresh3", 512, 0, "entries", "packets to new neighbours are dropped"},
		{"net/netfilter/nf_conntrack_max", 16384, 0, "connections", "a full table drops every new connection"},
		{"net/netfilter/nf_conntrack_tcp_timeout_established", 300, 2592000, "seconds", "idle connections are forgotten and then reset"},
		{"net/netfilter/nf_conntrack_udp_timeout", 5, 3600, "seconds", "a slow answer of DNS finds no connection"},
	}
}

// mistaken returns why a value that the kernel accepts is harmful, or "". floor: the value is a lower bound, which lowers nothing.
func mistaken(key Key, value string, floor bool) string {
	words := strings.Fields(value)
	switch {
	case key == "kernel/core_pattern" && strings.HasPrefix(value, "|") && !strings.HasPrefix(value, "|/"):
		return "the kernel runs no program without an absolute path, so no core is stored; write |/PATH"
	case key == "net/ipv4/ip_local_port_range" && len(words) == 2:
		first, _ := strconv.Atoi(words[0])
		if last, err := strconv.Atoi(words[1]); err == nil && last-first < 1000 {
			return fmt.Sprintf("%d local ports for all connections of the node are soon used up", last-first+1)
		}
	}
	i := slices.IndexFunc(usuals(), func(u usual) bool { return u.key == key })
	if i < 0 {
		return ""
	}
	u := usuals()[i]
	for _, word := range words {
		n, err := strconv.ParseInt(word, 10, 64)
		low := err == nil && n < u.low && !floor
		if high := err == nil && u.high > 0 && n > u.high; !low && !high {
			continue
		}
		usually := fmt.Sprintf("at least %d %s", u.low, u.unit)
		if u.high > 0 {
			usually = fmt.Sprintf("%d to %d %s", u.low, u.high, u.unit)
		}
		return fmt.Sprintf("%s; usual is %s", u.why, strings.TrimSpace(usually))
	}
	return ""
}
