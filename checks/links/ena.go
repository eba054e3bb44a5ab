package links

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// enaAllowance: AWS drops packets of an instance that exceeds its share, and
// only the driver's counters show it.
func enaAllowance() checks.Problem {
	return checks.Problem{
		Name: "ena.allowance", Stages: []checks.Stage{checks.Run}, Severity: policy.Warn,
		Detects: "AWS has queued or dropped packets because the instance exceeded an allowance of its type.",
		Symptom: "DNS and connections time out now and then under load, while CPU, memory and the node's own counters look fine.",
		How: "ethtool -S of every link with driver ena has *_allowance_exceeded that are not 0 (bw_in, bw_out, pps, conntrack, " +
			"linklocal). They count from boot: two reads 100 ms apart tell those that rise now, which a snapshot cannot.",
		Remedy: "take a larger instance type; for linklocal (1024 packets a second to DNS, IMDS and NTP) run NodeLocal DNSCache; for " +
			"conntrack lower the number of tracked connections",
		Ref:     "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/monitoring-network-performance-ena.html",
		Inspect: inspectENAAllowance,
	}
}

func inspectENAAllowance(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("0")
	links, err := h.Links.List(ctx)
	if err != nil {
		return s, err
	}
	seen := false
	for _, l := range links {
		if l.Kind != "" {
			continue
		}
		// lo has no driver.
		driver, err := h.Links.Driver(ctx, l.Name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errors.ErrUnsupported) {
			return s, err
		}
		if driver != "ena" {
			continue
		}
		err = judgeENA(ctx, h, l.Name, &s)
		if errors.Is(err, fs.ErrNotExist) {
			continue // gone since it was listed
		}
		if err != nil {
			return s, err
		}
		seen = true
	}
	if !seen {
		s.Skip = "no link has the driver ena"
	}
	return s, nil
}

func judgeENA(ctx context.Context, h *host.Host, link string, s *checks.State) error {
	first, err := enaCounters(ctx, h, link)
	if err != nil {
		return err
	}
	if len(first) == 0 {
		s.Evidence = append(s.Evidence, checks.Seen("ethtool -S "+link, "every *_allowance_exceeded is 0, or the driver has none"))
		return nil
	}
	if err := checks.Pause(ctx); err != nil {
		return err
	}
	second, err := enaCounters(ctx, h, link)
	if err != nil {
		return err
	}
	var all []string
	if !s.Pass {
		all = append(all, s.Got)
	}
	for _, name := range slices.Sorted(maps.Keys(second)) {
		text := fmt.Sprintf("%s=%d", name, second[name])
		if second[name] > first[name] {
			text += " rising"
		}
		s.Evidence = append(s.Evidence, checks.Seen("ethtool -S "+link, text))
		all = append(all, link+" "+text)
	}
	s.Differs(strings.Join(all, ", "), "")
	return nil
}

// enaCounters returns the allowance counters that are not 0.
func enaCounters(ctx context.Context, h *host.Host, link string) (map[string]uint64, error) {
	stats, err := h.Links.Stats(ctx, link)
	if err != nil {
		return nil, err
	}
	exceeded := map[string]uint64{}
	for name, n := range stats {
		if n > 0 && strings.HasSuffix(name, "_allowance_exceeded") {
			exceeded[name] = n
		}
	}
	return exceeded, nil
}
