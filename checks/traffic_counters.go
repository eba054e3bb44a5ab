package checks

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// countersInterval lies between two reads of counters: long enough to see a
// loss that goes on, short enough for a check.
const countersInterval = 100 * time.Millisecond

// countersPause waits for the second read, or for the context.
func countersPause(ctx context.Context) error {
	t := time.NewTimer(countersInterval)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting between two reads: %w", ctx.Err())
	}
}

// parseConntrackStat reads /proc/net/stat/nf_conntrack: a line of names, then
// one of hexadecimal numbers for every CPU. It answers the sums by name; the
// kernel's counters are 32 bits wide and their sums are kept in 64.
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
			return nil, fmt.Errorf("nf_conntrack statistics: %d numbers below %d names", len(fields), len(names))
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
		return nil, errors.New("nf_conntrack statistics: no line of a CPU")
	}
	return sums, nil
}

// parseSNMP reads one protocol's counters out of /proc/net/snmp: a line of
// names, then one of numbers, both beginning with the protocol.
func parseSNMP(text, protocol string) (map[string]int64, error) {
	var names []string
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, protocol+":")
		if !ok {
			continue
		}
		fields := strings.Fields(rest)
		if names == nil {
			names = fields
			continue
		}
		if len(fields) != len(names) {
			return nil, fmt.Errorf("/proc/net/snmp: %s has %d numbers for %d names", protocol, len(fields), len(names))
		}
		counters := make(map[string]int64, len(names))
		for i, f := range fields {
			n, err := strconv.ParseInt(f, 10, 64) // Tcp's MaxConn is -1
			if err != nil {
				return nil, fmt.Errorf("/proc/net/snmp: %s: %w", protocol, err)
			}
			counters[names[i]] = n
		}
		return counters, nil
	}
	return nil, fmt.Errorf("/proc/net/snmp has no counters of %s", protocol)
}
