package writers

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/config"
	"nodegate/policy"
)

// forwardingSettings returns networkd's settings that write forwarding parameters, from systemd 256
// on. Before that, IPForward= could only turn forwarding on.
func forwardingSettings(p *policy.Policy) []forwardingSetting {
	all := []forwardingSetting{{"IPv4Forwarding", "net/ipv4/conf/"}}
	for _, s := range p.Sysctls {
		if (s.Key == "net/ipv6/conf/all/forwarding" || s.Key == "net/ipv6/conf/default/forwarding") && s.Value == "1" {
			return append(all, forwardingSetting{"IPv6Forwarding", "net/ipv6/conf/"})
		}
	}
	return all
}

type forwardingSetting struct{ name, below string }

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
	writes, err := networkdForwards(ctx, h)
	if err != nil || !writes {
		return config.Entry{}, false, err
	}
	return e, true, nil
}

// networkdForwards reports whether networkd runs and supports these settings.
func networkdForwards(ctx context.Context, h *host.Host) (bool, error) {
	on, _, err := h.UnitOn(ctx, "systemd-networkd.service")
	if err != nil || !on {
		return false, err
	}
	version, _, err := h.SystemdVersion()
	return version >= 256, err
}

// forwardingOffOn returns the lines of .network files that turn forwarding off on a link of this
// machine. If it is uncertain whether a file matches the link, the file counts only if forwarding
// is off there.
func forwardingOffOn(ctx context.Context, h *host.Host, setting forwardingSetting) ([]offLine, error) {
	files, err := config.NetworkFiles(h.Files)
	if err != nil || !anyOff(files, setting.name) {
		return nil, err
	}
	if writes, err := networkdForwards(ctx, h); err != nil || !writes {
		return nil, err
	}
	links, err := h.Links.List(ctx)
	if err != nil {
		return nil, err
	}
	var found []offLine
	for _, l := range links {
		if l.Name == "lo" {
			continue
		}
		certain := true
		for _, c := range config.LinkFor(files, config.Device{Name: l.Name, Kind: l.Kind}) {
			certain = certain && len(c.If) == 0
			e, set := config.Last(c.Entries, "Network", setting.name)
			if !set || !isOff(e) {
				continue
			}
			if !certain {
				now, err := h.ReadSysctl(setting.below + l.Name + "/forwarding")
				if err != nil && !errors.Is(err, fs.ErrNotExist) {
					return found, err
				}
				if now != "0" {
					continue
				}
			}
			found = append(found, offLine{checks.Seen(e.At(), e.Key+"="+e.Value), l.Name})
			break
		}
	}
	return found, nil
}

func anyOff(files []config.LinkConfig, setting string) bool {
	for _, f := range files {
		if e, set := config.Last(f.Entries, "Network", setting); set && isOff(e) {
			return true
		}
	}
	return false
}

func isOff(e config.Entry) bool {
	on, valid := config.ParseBool(e.Value)
	return valid && !on
}

// ignoredIPForward returns the .network files whose IPForward= turned forwarding on before systemd
// 256, which ignores it.
func ignoredIPForward(ctx context.Context, h *host.Host) ([]checks.Evidence, error) {
	files, err := config.NetworkFiles(h.Files)
	if err != nil {
		return nil, err
	}
	var found []checks.Evidence
	for _, f := range files {
		e, set := config.Last(f.Entries, "Network", "IPForward")
		if set && !isOff(e) && !strings.EqualFold(e.Value, "ipv6") {
			found = append(found, checks.Seen(e.At(), "IPForward="+e.Value+" is ignored since systemd 256"))
		}
	}
	if found == nil {
		return nil, nil
	}
	if ignores, err := networkdForwards(ctx, h); err != nil || !ignores {
		return nil, err
	}
	return found, nil
}
