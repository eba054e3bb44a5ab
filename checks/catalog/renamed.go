package catalog

import (
	"slices"
	"strings"

	"nodegate/checks"
	"nodegate/policy"
)

// Renamed maps the former name of each check to the name that replaced it. Former names keep working in policies, flags and
// snapshots, with a warning.
func Renamed() map[string]string {
	renamed := map[string]string{}
	for _, former := range []string{"cgroups", "crash-loop", "flags", "kubeconfig", "memory-manager", "policy-options", "resources", "state"} {
		renamed["kubelet."+former] = "kubelet.exit" // kubelet itself names the fault
	}
	renamed["docker.forward-drop"] = "packetfilter.forward-drop"
	renamed["packetfilter.host-port"] = "kubeproxy.way"
	return renamed
}

// Dropped maps the name of each check that has gone to the reason. A policy that names one loads, with a warning.
func Dropped() map[string]string {
	dropped := map[string]string{
		"cgroup.version":           "kubelet.cgroup-v1 fails where kubelet refuses cgroup v1",
		"bridge.netfilter-ipv6":    "the kernel logs \"Module ipv6 is disabled, so call_ip6tables is not supported\"",
		"kubelet.shutdown-grace":   "kubelet logs \"waiting for logind InhibitDelayMaxSec to update\"",
		"ipset.revision":           "the log of calico-node names the set",
		"iptables.mark-regression": "packetfilter.kernel-can tries the rule",
		"iptables.version":         "kube-proxy brings its own iptables, and iptables.bare-drop finds what two versions lose",
		"kubelet.certificate":      "kubelet.exit prints why kubelet exits, and kubelet.certificate-dates compares the dates",
		"kubelet.kmsg":             "kubelet.exit prints why kubelet exits",
		"kubelet.hosts":            "`getent hosts localhost` prints ::1 or 127.0.0.1 where /etc/hosts has it",
		"kubelet.host-users":       "the Pod's event names the fault; to require it, write sysctl \"user.max_user_namespaces\" { min = 15000 }",
		"packetfilter.mark-bits":   "kubeproxy.way names the rule by which packets are lost",
		"probe.sandbox":            "kubelet starts the first sandbox itself; its event FailedCreatePodSandBox has the runtime's error",
		"route-localnet.martian":   "`sysctl -a -r route_localnet` and `iptables -S KUBE-FIREWALL` show it",
		"src-valid-mark.cilium":    "to require it, write sysctl \"net.ipv4.conf.all.src_valid_mark\" { value = 0 }",
		"vxlan.udp-gso":            "no kernel since Linux 6.8.5 and 6.6.26 has the fault",
	}
	for _, finding := range strings.Fields("affinity.name affinity.record affinity.timeout chain.undeclared chain.unexpected-rule " +
		"dispatch.condition dispatch.count dispatch.duplicate dispatch.empty dispatch.foreign dispatch.keys dispatch.last dispatch.order " +
		"dispatch.probability dispatch.shadowed endpoint.dnat endpoint.empty endpoint.hairpin endpoint.hash endpoint.order endpoint.protocol " +
		"external.dispatch external.empty external.masquerade external.order external.pod firewall.unpaired forward.accept " +
		"forward.invalid-order jump.loop masquerade.mark masquerade.mismatch masquerade.postrouting nft.base-chain nft.cluster-ips " +
		"nft.hairpin-set nft.map nodeports.condition nodeports.missing nodeports.order service.address service.conflict service.hash " +
		"service.masquerade service.portal service.portals") {
		dropped["kubeproxy."+finding] = "kubeproxy.chain.damaged names the rule"
	}
	dropped["kubeproxy.version.older"] = "no node has Kubernetes 1.14"
	dropped["kubeproxy.firewall.localnet"] = dropped["route-localnet.martian"]
	dropped["kubeproxy.nodeports.nowhere"] = "on the node, kubeproxy.chain.damaged reports node ports that nodePortAddresses does not exclude"
	for _, finding := range []string{"closed", "unread"} {
		dropped["kubeproxy.healthport."+finding] = "kube-proxy's event FailedToStartServiceHealthcheck of the Service reports it"
	}
	dropped["kubeproxy.rules.redacted"] = "kubeproxy.rules.partial reports it"
	return dropped
}

// Known returns the names that a policy may use.
func Known() policy.Options {
	o := policy.Options{Renamed: Renamed(), Dropped: Dropped()}
	for _, p := range Problems() {
		o.Checks = append(o.Checks, p.Name)
		if slices.Contains(p.Stages, checks.Boot) {
			o.AtBoot = append(o.AtBoot, p.Name)
		}
	}
	return o
}
