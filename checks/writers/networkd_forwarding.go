package writers

import (
	"context"

	"nodegate/internal/host"
	"nodegate/internal/host/config"
	"nodegate/policy"
)

// forwardingSettings returns networkd's settings that write forwarding parameters, from systemd 256
// on. Before that, IPForward= could only turn forwarding on.
func forwardingSettings(p *policy.Policy) []string {
	for _, s := range p.Sysctls {
		if (s.Key == "net/ipv6/conf/all/forwarding" || s.Key == "net/ipv6/conf/default/forwarding") && s.Value == "1" {
			return []string{"IPv4Forwarding", "IPv6Forwarding"}
		}
	}
	return []string{"IPv4Forwarding"}
}

// networkdForwarding returns networkd's global setting if networkd runs and is new enough to
// support it.
func networkdForwarding(ctx context.Context, h *host.Host, setting string) (config.Entry, bool, error) {
	entries, err := networkdConfig(h)
	if err != nil {
		return config.Entry{}, false, err
	}
	e, set := config.Last(entries, "Network", setting)
	if !set {
		return config.Entry{}, false, nil
	}
	on, _, err := h.UnitOn(ctx, "systemd-networkd.service")
	if err != nil || !on {
		return config.Entry{}, false, err
	}
	version, _, err := h.SystemdVersion()
	return e, version >= 256, err
}

func isOff(e config.Entry) bool {
	on, valid := config.ParseBool(e.Value)
	return valid && !on
}
