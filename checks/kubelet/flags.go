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

// flags: kubelet exits if it is given a flag that its version does not have.
func flags() checks.Problem {
	return checks.Problem{
		Name: "kubelet.flags", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Block, Later: true, Concurrent: true,
		Detects: "kubelet's command line has a flag that its version has removed, a label that a node must not set on " +
			"itself, or an in-tree cloud provider that no longer exists.",
		Symptom: "After an upgrade kubelet restarts forever: \"failed to parse kubelet flag: unknown flag: " +
			"--container-runtime\" (removed in 1.27), --pod-infra-container-image (1.35), --network-plugin (1.24).",
		How: "If the unit passes a flag that is not on a list of stable ones, runs kubelet with its flags and " +
			"--version: it parses the flags, prints its version and exits. Labels below node-role.kubernetes.io/ are reserved for the API " +
			"server; only OpenShift's kubelet, whose version ends in a commit, sets them. kubelet 1.31 and later exits if --cloud-provider is set " +
			"to anything but external.",
		Remedy: "remove the flag from kubelet's unit, its drop-ins, /var/lib/kubelet/kubeadm-flags.env or " +
			"/etc/default/kubelet",
		TradeOff: "",
		Ref:      "https://kubernetes.io/docs/reference/command-line-tools-reference/kubelet/",
		Inspect:  inspectFlags,
	}
}

// isOrdinaryFlag reports whether every kubelet version has the flag, so that kubelet need not be run.
func isOrdinaryFlag(flag string) bool {
	return slices.Contains([]string{
		"bootstrap-kubeconfig", "cert-dir", "cgroup-driver", "cloud-provider", "cluster-dns", "cluster-domain", "config", "config-dir",
		"container-runtime-endpoint", "fail-swap-on", "hostname-override", "image-credential-provider-bin-dir",
		"image-credential-provider-config", "kubeconfig", "kubelet-cgroups", "max-pods", "node-ip", "node-labels", "pod-manifest-path",
		"protect-kernel-defaults", "register-node", "register-with-taints", "resolv-conf", "root-dir", "rotate-certificates",
		"runtime-cgroups", "v", "vmodule", "volume-plugin-dir",
	}, flag)
}

func inspectFlags(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("flags that this kubelet accepts")
	k, err := h.Kubelet()
	if k.Command == nil {
		s.Skip = "kubelet's command line is unknown: " + k.Unknown
		return s, err
	}
	var wrong []string
	addWrong := func(flag, why string) {
		wrong = append(wrong, why)
		s.Evidence = append(s.Evidence, checks.Seen(k.Flags[flag].From.Source, k.Flags[flag].From.Text))
	}
	for _, labels := range k.Given("node-labels") { // if the flag is repeated, kubelet uses all of them
		said := checks.Seen("kubelet's command line", "--node-labels="+labels)
		if last := k.Flags["node-labels"]; last.Value == labels {
			said = checks.Seen(last.From.Source, last.From.Text)
		}
		for label := range strings.SplitSeq(labels, ",") {
			label = strings.TrimSpace(label)
			if !isRefusedLabel(label) {
				continue
			}
			allowed := false
			if strings.HasPrefix(label, "node-role.kubernetes.io/") {
				if allowed, err = h.OpenShiftKubelet(ctx); err != nil {
					return s, err
				}
			}
			if !allowed {
				wrong = append(wrong, "--node-labels must not set "+label)
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
			addWrong("cloud-provider", "--cloud-provider="+cloud+" was removed from kubelet")
		}
	}
	for flag := range k.Flags {
		if isOrdinaryFlag(flag) {
			continue
		}
		_, err := h.Kernel.Version(ctx, k.Command[0], k.Command[1:]...)
		if flag, why := findRefusedFlag(err); why != "" {
			addWrong(flag, why)
		}
		break
	}
	if wrong != nil {
		s.Differs(strings.Join(wrong, "; "), "")
	}
	return s, nil
}

// isRefusedLabel reports whether kubelet exits over a label of --node-labels: a Kubernetes label that
// it must not set on its own Node (ValidateKubeletFlags, and k8s.io/kubelet/pkg/apis).
func isRefusedLabel(label string) bool {
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

// findRefusedFlag returns the flag that kubelet rejected and its message. Other errors, for example
// that kubelet is not installed, are ignored.
func findRefusedFlag(err error) (flag, why string) {
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
