package writers

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"nodegate/internal/host"
	"nodegate/internal/host/config"
	"nodegate/policy"
)

// tunedSettings returns the settings of TuneD's active profile, if TuneD runs, without those that it sets again afterwards: unless
// reapply_sysctl is 0, it applies /run/sysctl.d, /etc/sysctl.d and /etc/sysctl.conf.
func tunedSettings(ctx context.Context, h *host.Host, reload config.Sysctls) ([]config.TunedSetting, error) {
	on, _, err := h.UnitOn(ctx, "tuned.service")
	if err != nil || !on {
		return nil, err
	}
	writes, err := config.TunedSysctls(h.Files)
	reapplies, mainErr := config.TunedReapplies(h.Files)
	return slices.DeleteFunc(writes, func(w config.TunedSetting) bool {
		return reapplies && slices.ContainsFunc(reload.Setters(w.Key), func(s config.Setting) bool {
			return !s.Glob() && !s.Lenient && (strings.HasPrefix(s.File, "/etc/") || strings.HasPrefix(s.File, "/run/"))
		})
	}), errors.Join(err, mainErr)
}

// findTunedLosses returns the profile's lines that set a parameter to a value which the policy does not allow: the last line that certainly
// applies, and later ones that may.
func findTunedLosses(want policy.Sysctl, writes []config.TunedSetting) (lost []config.TunedSetting) {
	names := append(otherNames(string(want.Key)), string(want.Key))
	for _, w := range slices.Backward(writes) {
		if !slices.Contains(names, w.Key) {
			continue
		}
		if !tunedAllows(want, w.Value) {
			lost = append(lost, w)
		}
		if w.If == "" {
			break
		}
	}
	return lost
}

// tunedAllows reports whether a TuneD value agrees with the policy. >N only raises a lower value, and <N only lowers a higher one.
func tunedAllows(want policy.Sysctl, value string) bool {
	bound := strings.TrimSpace(strings.TrimLeft(value, "<>"))
	n, err := strconv.ParseInt(bound, 10, 64)
	target, targetErr := strconv.ParseInt(want.Target(bound), 10, 64)
	switch {
	case err == nil && targetErr == nil && strings.HasPrefix(value, ">"):
		return target >= n
	case err == nil && targetErr == nil && strings.HasPrefix(value, "<"):
		return target <= n
	}
	return want.Allows(strings.Join(strings.Fields(value), " "))
}
