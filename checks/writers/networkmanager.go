package writers

import (
	"context"
	"errors"
	"slices"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/config"
	"nodegate/policy"
)

// networkManagerLinks: NetworkManager manages interfaces that a CNI created.
func networkManagerLinks() checks.Problem {
	return checks.Problem{
		Name: "networkmanager.cni-links", Stages: []checks.Stage{checks.Image, checks.Boot, checks.Run}, Severity: policy.Warn,
		Detects: "NetworkManager runs and is not configured to ignore the CNI's interfaces.",
		Symptom: "When NetworkManager restarts, Pod routes disappear, and interfaces go down or lose their addresses.",
		How: "NetworkManager.service is active or enabled. Neither its configuration (unmanaged-devices, or managed=0 in a device section) nor " +
			"udev's property NM_UNMANAGED (from its database for an existing link, otherwise from its rules) excludes the links of the CNI in " +
			"/etc/cni/net.d: flannel*, or cali*, tunl* and vxlan.calico. Before there is a CNI, any exclusion passes.",
		Remedy:   "add the links to unmanaged-devices in a file in /etc/NetworkManager/conf.d, and reload NetworkManager",
		TradeOff: "",
		Ref:      "https://docs.tigera.io/calico/latest/operations/troubleshoot/troubleshooting#configure-networkmanager",
		Inspect:  inspectNetworkManager,
	}
}

func inspectNetworkManager(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	on, said, err := h.UnitOn(ctx, "NetworkManager.service")
	if err != nil {
		return checks.State{}, err
	}
	if !on {
		return checks.State{Skip: "NetworkManager is off"}, nil
	}
	s := checks.Passing("CNI interfaces unmanaged", said)
	entries, err := networkManagerConfig(h)
	if err != nil {
		return s, err
	}
	var patterns []string
	for _, e := range entries {
		if e.Section != "keyfile" {
			continue
		}
		words := deviceSpecs(e.Value)
		switch e.Key {
		case "unmanaged-devices":
			patterns = words
		case "unmanaged-devices+":
			patterns = append(patterns, words...)
		case "unmanaged-devices-":
			patterns = slices.DeleteFunc(patterns, func(p string) bool { return slices.Contains(words, p) })
		default:
			continue
		}
		s.Evidence = append(s.Evidence, checks.Seen(e.At(), e.Key+"="+e.Value))
	}
	byDevice, seen := unmanagedDevices(entries)
	s.Evidence = append(s.Evidence, seen...)
	links, configured, err := presentLinks(h)
	if err != nil {
		return s, err
	}
	if !configured && len(patterns)+len(byDevice) > 0 {
		return s, nil // the image leaves links to a CNI that is not here yet
	}
	var managed []string
	var unknown error
	for _, l := range links {
		if config.Unmanaged(patterns, l.device.Name) || config.Unmanaged(byDevice, l.device.Name) {
			continue
		}
		off, said, err := unmanagedByUdev(ctx, h, l)
		switch {
		case err != nil:
			unknown = errors.Join(unknown, err)
		case off:
			s.Evidence = append(s.Evidence, said)
		default:
			managed = append(managed, l.pattern)
		}
	}
	if managed == nil && unknown != nil {
		return s, unknown // with a managed link the verdict would be certain
	}
	if managed != nil {
		s.Got, s.Pass = "managed: "+strings.Join(managed, " "), false
		s.Remedy = "create /etc/NetworkManager/conf.d/99-cni.conf with section [keyfile] and unmanaged-devices+=interface-name:" +
			strings.Join(managed, ";interface-name:") + ", then run `nmcli general reload`"
	}
	return s, nil
}

// unmanagedDevices returns the device specifications of the [device...] sections with managed=0.
func unmanagedDevices(entries []config.Entry) (patterns []string, seen []checks.Evidence) {
	for _, e := range entries {
		if e.Key != "match-device" || !strings.HasPrefix(e.Section, "device") {
			continue
		}
		set, is := config.Last(entries, e.Section, "managed")
		if managed, valid := config.ParseBool(set.Value); is && valid && !managed {
			patterns = append(patterns, deviceSpecs(e.Value)...)
			seen = append(seen, checks.Seen(set.At(), "managed="+set.Value+" for "+e.Value))
		}
	}
	return patterns, seen
}

func deviceSpecs(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return strings.ContainsRune(";, ", r) })
}

// networkManagerConfig returns every assignment in order of increasing precedence: the vendor's,
// the main file, the administrator's.
func networkManagerConfig(h *host.Host) ([]config.Entry, error) {
	dirs := []string{"/etc/NetworkManager/conf.d", "/run/NetworkManager/conf.d", "/usr/lib/NetworkManager/conf.d"}
	vendor, err := config.Collect(h.Files, dirs, ".conf")
	if err != nil {
		return nil, err
	}
	main, err := config.WithDropIns(h.Files, []string{"/etc/NetworkManager"}, "NetworkManager.conf")
	if err != nil {
		return nil, err
	}
	isOwn := func(f config.File) bool { return strings.HasPrefix(f.Path, "/etc/") }
	own := slices.DeleteFunc(slices.Clone(vendor), func(f config.File) bool { return !isOwn(f) })
	entries, err := config.ParseFiles(slices.Concat(slices.DeleteFunc(vendor, isOwn), main, own))
	if err != nil {
		return nil, errors.Join(errors.New("NetworkManager cannot parse this either"), err)
	}
	return entries, nil
}
