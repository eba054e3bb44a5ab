package writers

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"nodegate/internal/host"
	"nodegate/internal/host/config"
	"nodegate/policy"
)

// tunedSettings returns the settings of TuneD's active profile that apply last, if TuneD runs.
func tunedSettings(ctx context.Context, h *host.Host) ([]config.TunedSetting, error) {
	on, _, err := h.UnitOn(ctx, "tuned.service")
	if err != nil || !on {
		return nil, err
	}
	return config.TunedSysctls(h.Files)
}

// findTunedLoss returns the profile's line that sets a parameter, and whether its value differs
// from the policy's.
func findTunedLoss(want policy.Sysctl, writes []config.TunedSetting) (config.TunedSetting, bool) {
	names := append(otherNames(string(want.Key)), string(want.Key))
	for _, w := range slices.Backward(writes) {
		if !slices.Contains(names, w.Key) {
			continue
		}
		return w, !tunedAllows(want, w.Value)
	}
	return config.TunedSetting{}, false
}

// tunedAllows reports whether a TuneD value agrees with the policy; >N means at least N and <N at
// most N: it leaves a value that the policy allows alone.
func tunedAllows(want policy.Sysctl, value string) bool {
	bound, err := strconv.ParseInt(strings.TrimSpace(strings.TrimLeft(value, "<>")), 10, 64)
	exact, wantErr := strconv.ParseInt(want.Value, 10, 64)
	least, most := want.Min, want.Max
	if wantErr == nil {
		least, most = &exact, &exact
	}
	switch {
	case err == nil && strings.HasPrefix(value, ">"): // it raises a lower value only
		return most == nil || *most >= bound
	case err == nil && strings.HasPrefix(value, "<"):
		return least == nil || *least <= bound
	}
	return want.Allows(strings.Join(strings.Fields(value), " "))
}
