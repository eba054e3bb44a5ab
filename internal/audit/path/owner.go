package path

import (
	"slices"
	"strings"

	"nodegate/internal/ruleset"
)

// Owners returns the programs that own chains of iptables, or tables of nftables, of a family.
func Owners(sets []*ruleset.Set, family string) (owners []string) {
	add := func(owner string) {
		if owner != "" && !slices.Contains(owners, owner) {
			owners = append(owners, owner)
		}
	}
	for _, set := range sets {
		for _, save := range set.Saves {
			for _, t := range save.Tables {
				for _, c := range t.Chains {
					if save.Family == family && !strings.HasPrefix(c.Name, "KUBE-S") { // most chains are those of Services
						add(Owner(c.Name))
					}
				}
			}
		}
		for _, t := range set.Foreign {
			add((&Step{Program: "nft", Table: t.Family + " " + t.Name}).Owner())
		}
	}
	return owners
}

// Owner returns the program to which a chain belongs, as far as its name shows it.
func Owner(chain string) string {
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
	return ""
}

// Owner returns the program to which the step's chain or table belongs, as far as its name shows it.
func (s *Step) Owner() string {
	if owner := Owner(s.Chain); owner != "" || s.Program != "nft" {
		return owner
	}
	_, table, _ := strings.Cut(s.Table, " ")
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
