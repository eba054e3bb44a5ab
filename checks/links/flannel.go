package links

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"

	"nodegate/internal/host"
)

const flannelSubnet = "/run/flannel/subnet.env"

// lostFlannelLink describes the tunnel that flannel created on this node and that no longer exists, or returns "".
//
// flanneld writes the MTU of its tunnel into subnet.env. It is the NIC's MTU less the bytes that its backend adds, from which the backend
// follows: host-gw and IPsec work without a tunnel (pkg/backend of flannel 0.28).
func lostFlannelLink(h *host.Host, links []host.Link) (string, error) {
	text, err := h.Files.ReadFile(flannelSubnet)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	said := regexp.MustCompile(`(?m)^FLANNEL_MTU=(\d{3,5})\s*$`).FindSubmatch(text)
	if said == nil {
		return "", nil
	}
	mtu, err := strconv.Atoi(string(said[1]))
	if err != nil {
		return "", err
	}
	tunnels := map[int]string{50: "VXLAN", 80: "WireGuard", 20: "IPIP", 28: "UDP"}
	nic, kind := "", ""
	for _, l := range links {
		if strings.HasPrefix(l.Name, "flannel") {
			return "", nil
		}
		if l.Kind != "" && l.Kind != "bond" && l.Kind != "vlan" || l.Name == "lo" { // flannel runs over a NIC, bond or VLAN
			continue
		}
		if l.MTU == mtu {
			return "", nil // perhaps host-gw over this link
		}
		if tunnel := tunnels[l.MTU-mtu]; tunnel != "" {
			nic, kind = l.Name, tunnel
		}
	}
	if kind == "" {
		return "", nil
	}
	used, err := usesFlannel(h)
	if err != nil || !used {
		return "", err
	}
	return fmt.Sprintf("flannel's %s link is missing: %s has its MTU %d, for %s, and no link is named flannel*",
		kind, flannelSubnet, mtu, nic), nil
}

// usesFlannel reports whether a CNI configuration of this node calls flannel's plugin.
func usesFlannel(h *host.Host) (bool, error) {
	text, err := h.CNIConfig()
	return regexp.MustCompile(`"type"\s*:\s*"flannel"`).MatchString(text), err
}
