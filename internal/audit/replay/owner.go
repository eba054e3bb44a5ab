package replay

import (
	"slices"
	"strings"
)

// Owner returns the program to which a chain belongs, or a table of nft that is not iptables', as far as its name shows it.
func Owner(table, chain string) string {
	for _, known := range [][2]string{
		{"DOCKER", "Docker"}, {"ufw-", "ufw"}, {"ufw6-", "ufw"}, {"KUBE-ROUTER", "kube-router"}, {"KUBE-NWPLCY", "kube-router"},
		{"KUBE-POD-FW", "kube-router"}, {"KUBE-", "kube-proxy or kubelet"}, {"cali-", "Calico"}, {"CILIUM", "Cilium"},
		{"OLD_CILIUM", "Cilium"}, {"FLANNEL", "flannel"}, {"WEAVE", "Weave Net"}, {"CNI-", "a CNI plugin"}, {"ts-", "Tailscale"},
		{"ISTIO", "Istio"}, {"LIBVIRT", "libvirt"}, {"AWS-", "Amazon VPC CNI"}, {"IP-MASQ", "ip-masq-agent"}, {"f2b-", "Fail2ban"},
		{"nm-", "NetworkManager"}, {"NETAVARK", "Podman"}, {"IN_", "firewalld"}, {"FWD", "firewalld"}, {"PRE_", "firewalld"},
		{"POST_", "firewalld"}, {"INPUT_ZONES", "firewalld"}, {"FORWARD_", "firewalld"}, {"PREROUTING_", "firewalld"}, {"ANTREA", "Antrea"},
		{"OVN-KUBE", "OVN-Kubernetes"}, {"wg-", "WireGuard"},
	} {
		if strings.HasPrefix(chain, known[0]) {
			return known[1]
		}
	}
	for _, known := range [][2]string{
		{"calico", "Calico"}, {"cilium", "Cilium"}, {"antrea", "Antrea"}, {"ovn-kubernetes", "OVN-Kubernetes"}, {"kube-router", "kube-router"},
		{"kube-network-policies", "kube-network-policies"}, {"kindnet", "kindnet"}, {"docker-bridges", "Docker"}, {"firewalld", "firewalld"},
		{"tailscale", "Tailscale"}, {"netavark", "Podman"}, {"libvirt", "libvirt"}, {"crowdsec", "CrowdSec"}, {"f2b", "Fail2ban"},
	} {
		if strings.HasPrefix(table, known[0]) {
			return known[1]
		}
	}
	return ""
}

// enforcesPolicies reports whether a program enforces NetworkPolicies, which drop packets of Pods as they should.
func enforcesPolicies(owner string) bool {
	return slices.Contains([]string{"Calico", "Cilium", "kube-router", "Weave Net", "Antrea", "OVN-Kubernetes", "kube-network-policies",
		"kindnet"}, owner)
}
