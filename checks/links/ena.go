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

// enaAllowance detects packets that AWS queued or dropped because the instance exceeded its share. Only
// the driver's counters show it.
func enaAllowance() checks.Problem {
	return checks.Problem{
		Name: "ena.allowance", Stages: []checks.Stage{checks.Run}, Severity: policy.Warn,
		Detects: "AWS has queued or dropped packets because the instance exceeded an allowance of its type.",
		Symptom: "DNS and connections time out occasionally under load, while CPU, memory and the node's own counters look normal.",
		How: "`ethtool -S` of a link with the ena driver shows *_allowance_exceeded counters above 0 (bw_in, bw_out, pps, conntrack, " +
			"linklocal). They count from boot. Two reads 100 ms apart show which ones are rising, except in a snapshot, which holds one read.",
		Remedy: "use a larger instance type; for linklocal (1024 packets a second to DNS, IMDS and NTP) run " +
			"NodeLocal DNSCache; for conntrack reduce the number of tracked connections",
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
		driver, err := h.DriverOf(ctx, l.Name)
		if err != nil {
			return s, err
		}
		if driver != "ena" {
			continue
		}
		err = judgeENA(ctx, h, l.Name, &s)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed since it was listed
		}
		if err != nil {
			return s, err
		}
		seen = true
	}
	if !seen {
		s.Skip = "no link uses the ena driver"
	}
	return s, nil
}

func judgeENA(ctx context.Context, h *host.Host, link string, s *checks.State) error {
	first, err := enaCounters(ctx, h, link)
	if err != nil {
		return err
	}
	if len(first) == 0 {
		s.Evidence = append(s.Evidence, checks.Seen("ethtool -S "+link, "every *_allowance_exceeded counter is 0 or missing"))
		return nil
	}
	if h, err = checks.Pause(ctx, h); err != nil {
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
