package links

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// cniLeftovers detects configuration and links of an earlier CNI that conflict with the current one.
func cniLeftovers() checks.Problem {
	return checks.Problem{
		Name: "cni.leftovers", Stages: []checks.Stage{checks.Run}, Severity: policy.Warn,
		Detects: "Two CNIs have configuration files in /etc/cni/net.d, or VXLAN links on the same port.",
		Symptom: "Some Pods have addresses that nothing routes: they were created while the other CNI's file " +
			"sorted first. Or the overlay network loses packets.",
		How: "/etc/cni/net.d has files of two networks (loopback is ignored, and so are podman, CRI-O's and containerd's examples unless " +
			"they sort first), and the first is not Multus, which calls other plugins; or two VXLAN links on the " +
			"same port belong to two of flannel, Calico, Cilium and Weave.",
		Remedy:   "remove the files and links of the CNI that is no longer used, then restart the node to remove its routes and rules",
		TradeOff: "Pods of the removed CNI keep their addresses until they are recreated.",
		Ref:      "https://www.cni.dev/docs/spec/#section-1-network-configuration-format",
		Inspect:  inspectLeftovers,
	}
}

func inspectLeftovers(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("one CNI")
	networks, err := networksOf(h)
	if err != nil {
		return s, err
	}
	var got []string
	if len(networks) > 1 {
		got = append(got, networks...)
		s.Evidence = append(s.Evidence, checks.Seen(netDir, "the runtime uses the first: "+networks[0]))
	}
	links, err := h.Links.List(ctx)
	if err != nil {
		return s, err
	}
	shared, overlays := sharedPorts(links)
	got = append(got, shared...)
	switch {
	case got != nil:
		s.Differs(strings.Join(got, ", "), "")
	case networks == nil && !overlays:
		s.Skip = "no CNI is installed yet"
	}
	return s, nil
}

// netDir has the runtime's configuration of networks.
const netDir = "/etc/cni/net.d"

// networksOf returns the networks that CNIs have installed, each with its file. An example that the runtime would use instead comes first.
func networksOf(h *host.Host) (networks []string, err error) {
	names, err := h.ReadDirIfAny(netDir)
	if err != nil {
		return nil, err
	}
	var first string // an example that sorts before every network
	var seen []string
	for _, name := range names {
		if !strings.HasSuffix(name, ".conf") && !strings.HasSuffix(name, ".conflist") && !strings.HasSuffix(name, ".json") {
			continue
		}
		text, err := h.Files.ReadFile(netDir + "/" + name)
		if err != nil {
			return nil, err
		}
		var conf struct {
			Name, Type string
			Plugins    []struct{ Type string }
		}
		if json.Unmarshal(text, &conf) != nil {
			continue // the container runtime ignores it too
		}
		if len(conf.Plugins) > 0 {
			conf.Type = conf.Plugins[0].Type
		}
		example := slices.Contains([]string{"podman", "crio", "containerd-net", "nerdctl", "bridge"}, conf.Name)
		if example && len(networks) == 0 && first == "" {
			first = conf.Name + " in " + name
		}
		if conf.Type == "loopback" || example || len(networks) > 0 && strings.HasPrefix(networks[0], "multus") {
			continue
		}
		if same := conf.Name + " " + conf.Type; !slices.Contains(seen, same) { // a chained Cilium repeats the other plugin's network
			seen, networks = append(seen, same), append(networks, conf.Type+" in "+name)
		}
	}
	if first != "" && len(networks) > 0 {
		networks = append([]string{first}, networks...)
	}
	return networks, nil
}

// sharedPorts returns the pairs of VXLAN links of two CNIs that use one port, and whether a CNI has such a link at all.
func sharedPorts(links []host.Link) (shared []string, overlays bool) {
	owner := map[int]host.Link{} // keyed by port
	for _, l := range links {
		if l.VXLAN == nil || overlayOwner(l.Name) == "" {
			continue
		}
		other, taken := owner[l.VXLAN.Port]
		if taken && overlayOwner(other.Name) != overlayOwner(l.Name) {
			shared = append(shared, fmt.Sprintf("%s and %s on port %d", other.Name, l.Name, l.VXLAN.Port))
		}
		owner[l.VXLAN.Port] = l
	}
	return shared, len(owner) > 0
}

// overlayOwner returns the CNI that a VXLAN link belongs to by its name, or "".
func overlayOwner(link string) string {
	for _, known := range [][2]string{
		{"flannel", "flannel"}, {"vxlan.calico", "Calico"}, {"vxlan-v6.calico", "Calico"}, {"cilium_", "Cilium"}, {"vxlan-67", "Weave"},
	} {
		if strings.HasPrefix(link, known[0]) {
			return known[1]
		}
	}
	return ""
}
