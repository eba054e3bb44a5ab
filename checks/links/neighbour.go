package links

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/config"
	"nodegate/policy"
)

// neighbourTable detects ARP and NDP tables near their hard limit.
func neighbourTable() checks.Problem {
	return checks.Problem{
		Name: "neighbour.table", Stages: []checks.Stage{checks.Run}, Severity: policy.Warn,
		Detects: "The neighbour table (ARP, NDP) is nearly full or overflows.",
		Symptom: "The kernel logs \"neighbour: arp_cache: neighbor table overflow!\"; new connections to Pods and nodes fail at random.",
		How: "The number of entries in /proc/net/stat/{arp,ndisc}_cache is at least 80% of net.ipv{4,6}.neigh.default.gc_thresh3, or " +
			"table_fulls rises within 100 ms. Since Linux 5.0, permanent entries do not count against the limit: the entries of a CNI's VXLAN " +
			"links, one for each node, are subtracted.",
		Remedy:   "raise net.ipv4.neigh.default.gc_thresh{1,2,3} (and ipv6) to 80000, 90000, 100000, as large clusters do",
		TradeOff: "An entry takes about 0.5 KiB; a high gc_thresh1 keeps stale entries longer.",
		Ref:      "https://man7.org/linux/man-pages/man7/arp.7.html",
		Inspect:  inspectNeighbourTable,
	}
}

func inspectNeighbourTable(ctx context.Context, h *host.Host, p *policy.Policy) (checks.State, error) {
	s := checks.State{Want: "below 80% of gc_thresh3, never full", Pass: true}
	var got, remedies []string
	var causes checks.Causes
	for _, table := range []struct{ stat, family string }{{"/proc/net/stat/arp_cache", "ipv4"}, {"/proc/net/stat/ndisc_cache", "ipv6"}} {
		entries, full, err := readNeighbourStat(h, table.stat)
		if errors.Is(err, fs.ErrNotExist) && table.family == "ipv6" {
			continue // IPv6 is disabled
		}
		if errors.Is(err, fs.ErrNotExist) {
			return checks.State{Skip: "the kernel shows the table in its first network namespace only, and this node is in another"}, nil
		}
		if err != nil {
			return s, err
		}
		before := full
		if full > 0 { // counted since boot: the overflow may have ended
			if h, err = checks.Pause(ctx, h); err != nil {
				return s, err
			}
			if entries, full, err = readNeighbourStat(h, table.stat); err != nil {
				return s, err
			}
		}
		key := "net/" + table.family + "/neigh/default/gc_thresh3"
		most, err := h.SysctlNumber(key)
		if err != nil {
			return s, err
		}
		s.Evidence = append(s.Evidence, checks.Seen(table.stat, fmt.Sprintf("entries %d, table_fulls %d", entries, full)),
			checks.Seen("/proc/sys/"+key, strconv.FormatUint(most, 10)))
		if entries*100 >= most*80 {
			kept, err := countPermanentEntries(ctx, h, table.family)
			if err != nil {
				return s, err
			}
			entries -= min(kept, entries)
		}
		summary := fmt.Sprintf("%s %d of %d", table.family, entries, most)
		if full > before {
			summary += fmt.Sprintf(", full %d times in 100 ms", full-before)
		} else if full > 0 {
			summary += fmt.Sprintf(", full %d times since boot", full)
		}
		got = append(got, summary)
		if entries*100 >= most*80 || full > before {
			s.Pass = false
			causes.Add(checks.SysctlCause(p, key))
			remedies = append(remedies, fmt.Sprintf("raise net.%[1]s.neigh.default.gc_thresh3 to %[2]d or more, and gc_thresh2 to %[3]d",
				table.family, most*4, most*2))
		}
	}
	s.Got, s.Remedy, s.Cause = strings.Join(got, "; "), strings.Join(remedies, "; "), causes.One()
	return s, nil
}

func readNeighbourStat(h *host.Host, name string) (entries, full uint64, err error) {
	text, err := h.Text(name)
	if err != nil {
		return 0, 0, err
	}
	if entries, full, err = config.ParseNeighbourStat(text); err != nil {
		err = fmt.Errorf("reading %s: %w", name, err)
	}
	return entries, full, err
}

// countPermanentEntries counts the entries of a family that a CNI's agent added for gateways of VXLAN links. The kernel does not
// count them against the limit: see gc_entries in net/core/neighbour.c.
func countPermanentEntries(ctx context.Context, h *host.Host, family string) (n uint64, err error) {
	if release, err := h.KernelRelease(); err != nil || !release.AtLeast(5, 0) {
		return 0, err
	}
	hops, err := h.Links.Hops(ctx)
	for _, hop := range hops {
		if hop.MAC != "" && strings.Contains(hop.Gateway, ":") == (family == "ipv6") {
			n++
		}
	}
	return n, err
}
