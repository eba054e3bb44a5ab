package packetfilter

import (
	"context"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// kernelCNI detects missing modules that the CNI, known by its name, may need.
func kernelCNI() checks.Problem {
	return checks.Problem{
		Name: "packetfilter.kernel-can-cni", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Warn,
		Detects: "The kernel lacks a module that the CNI on this node may need: for a kind of link or a type of set.",
		Symptom: "Pods on other nodes are unreachable, and the CNI logs \"operation not supported\" or \"Kernel error received: no such file\".",
		How: "The name in /etc/cni/net.d identifies the CNI, and its modules are looked up in the running kernel. The CNI's own configuration " +
			"decides which of them it uses. That is not on the node, so this is only a warning.",
		Remedy: "install the package that provides the module for this kernel: kernel-modules-extra, linux-modules-extra or linux-image",
		Ref:    "https://docs.tigera.io/calico/latest/getting-started/kubernetes/requirements",
		Inspect: func(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
			s := checks.Passing("the CNI's modules installed")
			fact, _ := h.Fact(ctx, "cni.name")
			name, _ := fact.(string)
			modules := cniModules(name)
			if modules == nil {
				s.Skip = "no CNI with known modules found"
				return s, nil
			}
			release, err := h.Kernel.Release()
			if err != nil {
				return s, err
			}
			missing, err := missingModules(h, release, modules)
			if missing == nil {
				return s, err
			}
			s.Evidence = []checks.Evidence{checks.Seen("/etc/cni/net.d", name)}
			list := strings.Join(missing, ", ")
			s.Differs("missing modules: "+list, "install "+h.ModulePackage(release)+" for "+list)
			return s, nil
		},
	}
}

func cniModules(name string) []string {
	switch name {
	case "cbr0": // flannel's own manifest
		return []string{"vxlan"}
	case "k8s-pod-network": // Calico's and Canal's
		return []string{"vxlan", "ipip", "ip_set", "ip_set_hash_net", "ip_set_hash_ip", "xt_set", "xt_multiport"}
	case "cilium":
		return []string{"vxlan", "geneve", "sch_ingress", "cls_bpf"}
	}
	return nil
}
