package packetfilter

import (
	"context"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// kernelCNI: the modules that the CNI found here may need, by its name.
func kernelCNI() checks.Problem {
	return checks.Problem{
		Name: "packetfilter.kernel-can-cni", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Warn,
		Detects: "The kernel has not installed a module that the CNI found here can need: a kind of link, or a type of set.",
		Symptom: "Pods of other nodes are not reached, and the CNI logs \"operation not supported\" or \"Kernel error received: no such file\".",
		How: "The CNI is known by the name in /etc/cni/net.d; its modules are looked for in the running kernel. Which of them it uses depends " +
			"on its own configuration, which is not on the node: this is a warning.",
		Remedy:   "install the package that has the module for this kernel: kernel-modules-extra, linux-modules-extra or linux-image",
		TradeOff: "",
		Ref:      "https://docs.tigera.io/calico/latest/getting-started/kubernetes/requirements",
		Inspect: func(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
			s := checks.Passing("the CNI's modules")
			fact, _ := h.Fact(ctx, "cni.name")
			name, _ := fact.(string)
			modules := cniModules(name)
			if modules == nil {
				s.Skip = "no CNI is here whose modules are known"
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
			s.Differs("without "+list, "install "+h.ModulePackage(release)+", which has "+list)
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
