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

// tunedWrites returns what TuneD's active profile writes last, where TuneD runs.
func tunedWrites(ctx context.Context, h *host.Host) ([]config.TunedSetting, error) {
	on, _, err := h.UnitOn(ctx, "tuned.service")
	if err != nil || !on {
		return nil, err
	}
	return config.TunedSysctls(h.Files)
}

// tunedLoss returns the profile's line that sets a parameter to another value than
// the policy's, if there is one.
func tunedLoss(want policy.Sysctl, writes []config.TunedSetting) (config.TunedSetting, bool) {
	names := append(otherNames(string(want.Key)), string(want.Key))
	for _, w := range slices.Backward(writes) {
		if !slices.Contains(names, w.Key) {
			continue
		}
		return w, !tunedAgrees(want, w.Value)
	}
	return config.TunedSetting{}, false
}

// tunedAgrees reads >N as at least N and <N as at most N.
func tunedAgrees(want policy.Sysctl, value string) bool {
	bound, err := strconv.ParseInt(strings.TrimSpace(strings.TrimLeft(value, "<>")), 10, 64)
	wanted, wantErr := strconv.ParseInt(want.Value, 10, 64)
	switch {
	case err == nil && wantErr == nil && strings.HasPrefix(value, ">"):
		return wanted >= bound
	case err == nil && wantErr == nil && strings.HasPrefix(value, "<"):
		return wanted <= bound
	}
	return strings.Join(strings.Fields(value), " ") == strings.Join(strings.Fields(want.Value), " ")
}
