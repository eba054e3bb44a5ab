package links

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/plain"
	"nodegate/policy"
)

// vxlanOverhead is the size of the headers that VXLAN adds over IPv4: outer IP 20, UDP 8, VXLAN 8,
// inner Ethernet 14. An outer IPv6 header takes 40.
const vxlanOverhead, vxlanOverheadV6 = 50, 70

// mtuChain detects a link in the chain NIC, tunnel, bridge, Pod whose MTU is larger than the link below it allows.
func mtuChain() checks.Problem {
	return checks.Problem{
		Name: "mtu.chain", Stages: []checks.Stage{checks.Run}, Severity: policy.Warn,
		Detects: "A tunnel, bridge or Pod link has a larger MTU than the link that carries its packets allows.",
		Symptom: "Pings and small responses pass between nodes, but large ones hang (TLS handshakes, image " +
			"pulls, `kubectl logs`), or every large packet is fragmented.",
		How: "A VXLAN link's MTU is larger than its parent's (without a parent: that of the default route's link) minus 50, or minus 70 over " +
			"IPv6; or a bridge of Pods, one of its veths or a routed cali* veth has a larger MTU than every VXLAN link; or a Pod's link has a " +
			"larger MTU than the other end of its veth, which drops its large packets without an answer. The check ignores links whose MTU is set " +
			"by routes (cilium_*, vxlan_sys_*), bridges with a physical port, and bridges of Docker, Podman, nerdctl, libvirt, LXC and Incus.",
		Remedy: "lower the MTU in the CNI's configuration (flannel: MTU in net-conf.json's Backend; Calico: " +
			"vxlanMTU and veth_mtu), or raise the NIC's MTU",
		TradeOff: "Smaller packets reduce throughput. A jumbo MTU on the NIC does not, if the whole network supports it.",
		Ref:      "https://docs.tigera.io/calico/latest/networking/configuring/mtu",
		Inspect:  inspectMTUChain,
	}
}

func inspectMTUChain(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("tunnel <= NIC - 50, Pods <= tunnel")
	links, err := h.Links.List(ctx)
	if err != nil {
		return s, err
	}
	routes, err := h.Links.DefaultRoutes(ctx)
	if err != nil {
		return s, err
	}
	found := mtuFaults{State: &s}
	found.compareTunnels(links, routes)
	tunnelled := found.largest > 0
	pods, err := h.Links.PodMTUs(ctx)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		s.Evidence = append(s.Evidence, checks.Seen("links in Pods", "not compared: "+err.Error()))
	case err != nil:
		return s, err
	}
	found.comparePods(links, podBridges(links, routes), pods, tunnelled)
	switch {
	case found.wrong != nil:
		s.Differs(strings.Join(found.wrong, ", "), mtuRemedy(append(found.lower, found.raise...)))
	case !tunnelled:
		s.Skip = "no VXLAN tunnel"
	}
	return s, nil
}

// mtuFaults are the links with a wrong MTU, and the commands that correct them.
type mtuFaults struct {
	*checks.State
	wrong, lower, raise []string
	largest             int // MTU of a tunnel
}

// compareTunnels compares each VXLAN link with the link that carries its packets, but for those that are ports, as of virtual machines.
func (f *mtuFaults) compareTunnels(links []host.Link, routes []string) {
	byName := map[string]host.Link{}
	for _, l := range links {
		byName[l.Name] = l
	}
	for _, l := range links {
		if l.VXLAN == nil || l.VXLAN.FlowBased || l.Master != "" || strings.HasPrefix(l.Name, "cilium_") {
			continue
		}
		f.largest = max(f.largest, l.MTU)
		overhead := vxlanOverhead
		if l.VXLAN.V6 || strings.Contains(l.Name, "-v6.") { // flannel's and Calico's names; old snapshots lack V6
			overhead = vxlanOverheadV6
			f.Want = "tunnel <= NIC - 50 (over IPv6 70), Pods <= tunnel"
			f.Got = f.Want
		}
		parents := routes
		if l.VXLAN.Parent != "" {
			parents = []string{l.VXLAN.Parent}
		}
		for _, name := range parents {
			parent, known := byName[name]
			if !known {
				continue
			}
			f.Evidence = append(f.Evidence, checks.Seen(l.Name, fmt.Sprintf("mtu %d through %s mtu %d", l.MTU, name, parent.MTU)))
			if most := parent.MTU - overhead; l.MTU > most {
				f.wrong = append(f.wrong, fmt.Sprintf("%s %d > %d", l.Name, l.MTU, most))
				f.lower = append(f.lower, fmt.Sprintf("ip link set dev %s mtu %d", plain.Quote(l.Name), most))
			}
		}
	}
}

// comparePods compares the bridges and links of Pods with the tunnels, and with the other ends in the Pods.
func (f *mtuFaults) comparePods(links []host.Link, bridges map[string]bool, pods map[string]int, tunnelled bool) {
	for _, l := range links {
		ofPod := bridges[l.Name] || bridges[l.Master] || l.Kind == "veth" && strings.HasPrefix(l.Name, "cali")
		if tunnelled && ofPod && l.MTU > f.largest {
			f.Evidence = append(f.Evidence, checks.Seen(l.Name, fmt.Sprintf("mtu %d", l.MTU)))
			f.wrong = append(f.wrong, fmt.Sprintf("%s %d > %d", l.Name, l.MTU, f.largest))
			if l.Kind == "bridge" { // with a smaller MTU than the Pod's own, a veth drops packets silently
				f.lower = append(f.lower, fmt.Sprintf("ip link set dev %s mtu %d", plain.Quote(l.Name), f.largest))
			}
		}
		if pods[l.Name] > l.MTU {
			f.Evidence = append(f.Evidence, checks.Seen(l.Name, fmt.Sprintf("mtu %d, its Pod's end %d", l.MTU, pods[l.Name])))
			f.wrong = append(f.wrong, fmt.Sprintf("the Pod of %s %d > %d", l.Name, pods[l.Name], l.MTU))
			if !tunnelled || pods[l.Name] <= f.largest {
				f.raise = append(f.raise, fmt.Sprintf("ip link set dev %s mtu %d", plain.Quote(l.Name), pods[l.Name]))
			}
		}
	}
}

// mtuRemedy returns a remedy with the commands that change this node's links. The link in a Pod keeps its MTU as long as the Pod exists.
func mtuRemedy(commands []string) string {
	const recreate = "set the smaller MTU in the CNI's configuration and recreate the Pods"
	if commands == nil {
		return recreate
	}
	return "run `" + strings.Join(commands, "; ") + "` now; " + recreate
}

// podBridges returns the bridges whose ports are all veths. It leaves out the node's uplink, nodegate's probe and
// the bridges of programs that connect their own containers and machines.
func podBridges(links []host.Link, routes []string) map[string]bool {
	pods := map[string]bool{}
	for _, l := range links {
		if l.Kind == "veth" && l.Master != "" {
			pods[l.Master] = true
		}
	}
	others := []string{"docker", "br-", "podman", "cni-podman", "nerdctl", "virbr", "lxdbr", "incusbr", "lxcbr"}
	foreign := func(name string) bool {
		return slices.ContainsFunc(others, func(p string) bool { return strings.HasPrefix(name, p) })
	}
	for _, l := range links {
		if l.Kind != "veth" {
			delete(pods, l.Master) // the uplink, or a tunnel, is a port
		}
		if l.Kind != "bridge" || foreign(l.Name) || slices.Contains(routes, l.Name) {
			delete(pods, l.Name)
		}
	}
	return pods
}
