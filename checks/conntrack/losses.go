package conntrack

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// conntrackLosses detects packets that conntrack drops: if two packets of a flow race for an entry, one is lost.
func conntrackLosses() checks.Problem {
	return checks.Problem{
		Name: "conntrack.losses", Stages: []checks.Stage{checks.Run}, Severity: policy.Warn,
		Detects: "Connection tracking is dropping packets.",
		Symptom: "DNS answers sometimes take 5 seconds (insert_failed: the A and the AAAA query race, " +
			"kubernetes#56903), or new connections are dropped (drop, early_drop: the table is full).",
		How: "insert_failed, drop or early_drop in /proc/net/stat/nf_conntrack, summed over CPUs, rises between two reads 100 ms apart. If all " +
			"are 0, there is no second read. A snapshot holds one read, so nothing rises there. On a kernel without that file " +
			"(CONFIG_NF_CONNTRACK_PROCFS), the counters are read over netlink.",
		Remedy: "for insert_failed, run NodeLocal DNSCache, or add single-request-reopen or use-vc to the " +
			"options in resolv.conf; for drop and early_drop, raise net.netfilter.nf_conntrack_max",
		TradeOff: "use-vc sends every query over TCP; NodeLocal DNSCache is one more Pod on each node.",
		Ref:      "https://github.com/kubernetes/kubernetes/issues/56903",
		Inspect:  inspectConntrackLosses,
	}
}

const conntrackStat = "/proc/net/stat/nf_conntrack"

func inspectConntrackLosses(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("no loss now")
	first, err := readConntrackStat(h)
	if errors.Is(err, fs.ErrNotExist) {
		s.Skip = explainMissingStat(h)
		return s, nil
	}
	if err != nil {
		return s, err
	}
	second := first
	counters := []string{"insert_failed", "drop", "early_drop"}
	for _, name := range counters {
		if _, ok := first[name]; !ok {
			return s, fmt.Errorf("%s lacks the column %s", conntrackStat, name)
		}
	}
	// A node that never lost a packet is spared the wait for a second reading.
	if first["insert_failed"]+first["drop"]+first["early_drop"] > 0 {
		if h, err = checks.Pause(ctx, h); err != nil {
			return s, err
		}
		if second, err = readConntrackStat(h); err != nil {
			return s, err
		}
	}
	var rising, remedies []string
	for _, name := range counters {
		text := fmt.Sprintf("%s %d", name, second[name])
		if more := second[name] - first[name]; second[name] > first[name] {
			text = fmt.Sprintf("%s %d, %d more in 100 ms", name, second[name], more)
			rising = append(rising, name)
		}
		s.Evidence = append(s.Evidence, checks.Seen(conntrackStat, text))
	}
	if rising == nil {
		return s, nil
	}
	// insert_failed is the first of counters: it is the first here or not rising, and any other name at the end means a full table.
	if rising[0] == "insert_failed" {
		remedies = append(remedies, "run NodeLocal DNSCache, or add single-request-reopen or use-vc to the options in resolv.conf")
	}
	if rising[len(rising)-1] != "insert_failed" {
		s.Cause = "conntrack.full"
		remedies = append(remedies, "raise net.netfilter.nf_conntrack_max, and run `conntrack -L` to see which connections fill the table")
	}
	s.Differs("rising: "+strings.Join(rising, ", "), strings.Join(remedies, "; "))
	return s, nil
}

// explainMissingStat distinguishes a machine that tracks nothing from a kernel that does not export its counters.
func explainMissingStat(h *host.Host) string {
	const notLoaded, notExported = "nf_conntrack is not loaded", "this kernel does not export its counters: CONFIG_NF_CONNTRACK_PROCFS is off"
	switch _, err := conntrackNumber(h, "count"); {
	case err == nil:
		return notExported
	case errors.Is(err, fs.ErrNotExist):
		return notLoaded + ": nothing is tracked"
	}
	return notLoaded + ", or " + notExported // a snapshot without the count
}

func readConntrackStat(h *host.Host) (map[string]uint64, error) {
	text, err := h.Text(conntrackStat)
	if err != nil {
		return nil, err
	}
	return parseConntrackStat(text)
}

// parseConntrackStat reads /proc/net/stat/nf_conntrack: a line of names, then a line of hexadecimal numbers for every
// CPU. It returns the sums by name. The kernel's counters have 32 bits, the sums 64.
func parseConntrackStat(text string) (map[string]uint64, error) {
	header, rest, _ := strings.Cut(text, "\n")
	names := strings.Fields(header)
	if len(names) == 0 {
		return nil, errors.New("nf_conntrack statistics: no header")
	}
	sums := make(map[string]uint64, len(names))
	cpus := 0
	for line := range strings.Lines(rest) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if len(fields) != len(names) {
			return nil, fmt.Errorf("nf_conntrack statistics: %d numbers for %d names", len(fields), len(names))
		}
		cpus++
		for i, f := range fields {
			n, err := strconv.ParseUint(f, 16, 32)
			if err != nil {
				return nil, fmt.Errorf("nf_conntrack statistics: %w", err)
			}
			sums[names[i]] += n
		}
	}
	if cpus == 0 {
		return nil, errors.New("nf_conntrack statistics: no line for a CPU")
	}
	return sums, nil
}
