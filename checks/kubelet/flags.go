package kubelet

import (
	"context"
	"regexp"
	"slices"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// flags: kubelet exits over a flag that its version does not have.
func flags() checks.Problem {
	return checks.Problem{
		Name: "kubelet.flags", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Block, Later: true, Concurrent: true,
		Detects: "kubelet is given a flag that its version does not have any more, a label that a node must not give itself, or a cloud " +
			"provider that was taken out of it.",
		Symptom: "After an upgrade kubelet restarts for ever: \"failed to parse kubelet flag: unknown flag: --container-runtime\" (gone in " +
			"1.27), --pod-infra-container-image (1.35), --network-plugin (1.24).",
		How: "Where the unit gives kubelet a flag that is not among the ordinary ones, kubelet itself is run with its flags and --version: it " +
			"parses them, prints its version and ends. Labels below node-role.kubernetes.io/ are for the API server to set; --cloud-provider " +
			"other than external ends kubelet from 1.31 on.",
		Remedy:   "take the flag out of kubelet's unit, its drop-ins, /var/lib/kubelet/kubeadm-flags.env or /etc/default/kubelet",
		TradeOff: "",
		Ref:      "https://kubernetes.io/docs/reference/command-line-tools-reference/kubelet/",
		Inspect:  inspectFlags,
	}
}

// ordinary reports whether every kubelet has the flag, so that it need not be asked.
func ordinary(flag string) bool {
	return slices.Contains([]string{
		"bootstrap-kubeconfig", "cert-dir", "cgroup-driver", "cloud-provider", "cluster-dns", "cluster-domain", "config", "config-dir",
		"container-runtime-endpoint", "fail-swap-on", "hostname-override", "image-credential-provider-bin-dir",
		"image-credential-provider-config", "kubeconfig", "kubelet-cgroups", "max-pods", "node-ip", "node-labels", "pod-manifest-path",
		"protect-kernel-defaults", "register-node", "register-with-taints", "resolv-conf", "root-dir", "rotate-certificates",
		"runtime-cgroups", "v", "vmodule", "volume-plugin-dir",
	}, flag)
}

func inspectFlags(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("flags that kubelet has")
	k, err := h.Kubelet()
	if k.Command == nil {
		s.Skip = "kubelet's command line cannot be known: " + k.Unknown
		return s, err
	}
	var wrong []string
	blame := func(flag, why string) {
		wrong = append(wrong, why)
		s.Evidence = append(s.Evidence, checks.Seen(k.Flags[flag].From.Source, k.Flags[flag].From.Text))
	}
	for _, labels := range k.Given("node-labels") { // of several flags kubelet takes all
		said := checks.Seen("kubelet's command line", "--node-labels="+labels)
		if last := k.Flags["node-labels"]; last.Value == labels {
			said = checks.Seen(last.From.Source, last.From.Text)
		}
		for label := range strings.SplitSeq(labels, ",") {
			if label = strings.TrimSpace(label); refusedLabel(label) {
				wrong = append(wrong, "--node-labels may not set "+label)
				s.Evidence = append(s.Evidence, said)
			}
		}
	}
	if cloud := k.Flags["cloud-provider"].Value; cloud != "" && cloud != "external" {
		minor, err := h.KubeletMinor(ctx)
		if err != nil {
			return s, err
		}
		if minor >= 31 {
			blame("cloud-provider", "--cloud-provider="+cloud+" is no longer in kubelet")
		}
	}
	for flag := range k.Flags {
		if ordinary(flag) {
			continue
		}
		_, err := h.Kernel.Version(ctx, k.Command[0], k.Command[1:]...)
		if flag, why := refusedFlag(err); why != "" {
			blame(flag, why)
		}
		break
	}
	if wrong != nil {
		s.Differs(strings.Join(wrong, "; "), "")
	}
	return s, nil
}

// refusedLabel reports whether kubelet exits over a label of --node-labels: one of Kubernetes' own that it may not give its Node
// (ValidateKubeletFlags, and k8s.io/kubelet/pkg/apis).
func refusedLabel(label string) bool {
	key, _, _ := strings.Cut(label, "=")
	namespace, _, _ := strings.Cut(key, "/")
	below := func(domain string) bool { return namespace == domain || strings.HasSuffix(namespace, "."+domain) }
	switch {
	case key == namespace, !below("kubernetes.io") && !below("k8s.io"), below("node.kubernetes.io"), below("kubelet.kubernetes.io"):
		return false
	}
	return !slices.Contains([]string{
		"kubernetes.io/hostname", "kubernetes.io/os", "kubernetes.io/arch", "beta.kubernetes.io/os", "beta.kubernetes.io/arch",
		"beta.kubernetes.io/instance-type", "topology.kubernetes.io/zone", "topology.kubernetes.io/region",
		"failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region",
	}, key)
}

// refusedFlag returns what kubelet says of its flags, and which one it names. Another error is none of the flags: that
// kubelet is not installed, for example.
func refusedFlag(err error) (flag, why string) {
	if err == nil {
		return "", ""
	}
	said := regexp.MustCompile(`failed to parse kubelet flag: ([^;]*)`).FindStringSubmatch(err.Error())
	if said == nil {
		return "", ""
	}
	if named := regexp.MustCompile(`--([a-z0-9-]+)`).FindStringSubmatch(said[1]); named != nil {
		flag = named[1]
	}
	return flag, strings.TrimRight(said[1], `"`)
}
