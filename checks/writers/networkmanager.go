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
		How: "NetworkManager.service is active or enabled. Its configuration (unmanaged-devices, or managed=0 in a device section) does not " +
			"exclude the links of the CNI in /etc/cni/net.d: flannel*, or tunl* and vxlan.calico. Its own udev rules exclude cali* and other " +
			"veths; rules of others are not read. Before there is a CNI, any exclusion passes.",
		Remedy:  "add the links to unmanaged-devices in a file in /etc/NetworkManager/conf.d, and reload NetworkManager",
		Ref:     "https://docs.tigera.io/calico/latest/operations/troubleshoot/troubleshooting#configure-networkmanager",
		Inspect: inspectNetworkManager,
	}
}

// cniLink is a family of links that a CNI creates.
type cniLink struct {
	cni     string        // a word of the CNI's configuration
	pattern string        // in the syntax of NetworkManager's lists
	device  config.Device // an example
}

func cniLinks() []cniLink {
	return []cniLink{
		{"flannel", "flannel*", config.Device{Name: "flannel.1", Kind: "vxlan"}},
		{"calico", "cali*", config.Device{Name: "cali0a1b2c3d4e5", Kind: "veth"}},
		{"calico", "tunl*", config.Device{Name: "tunl0", Kind: "ipip"}},
		{"calico", "vxlan.calico", config.Device{Name: "vxlan.calico", Kind: "vxlan"}},
	}
}

// presentLinks returns the families of links that the CNI of this node creates. configured is false if the node has no CNI yet.
func presentLinks(h *host.Host) (links []cniLink, configured bool, err error) {
	words, err := h.CNIConfig()
	if err != nil {
		return nil, false, err
	}
	if strings.Contains(words, "canal") {
		words += "calico flannel"
	}
	return slices.DeleteFunc(cniLinks(), func(l cniLink) bool { return words != "" && !strings.Contains(words, l.cni) }), words != "", nil
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
	for _, l := range links {
		veth := l.device.Kind == "veth" // NetworkManager's 85-nm-unmanaged.rules
		if !veth && !config.Unmanaged(patterns, l.device.Name) && !config.Unmanaged(byDevice, l.device.Name) {
			managed = append(managed, l.pattern)
		}
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
