package kubelet

import (
	"context"
	"slices"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// mounts: files that kubelet and its runtime write before their disk is mounted are hidden by the mount.
func mounts() checks.Problem {
	return checks.Problem{
		Name: "kubelet.mounts", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Warn,
		Detects: "/etc/fstab has a file system for a directory of kubelet or the container runtime, and it is not " +
			"mounted, for example because cloud-init has not finished.",
		Symptom: "The node's image store, logs or Pods disappear when the disk is mounted over them; the hidden files " +
			"keep filling the root disk.",
		How: "/etc/fstab has a mount point at or above /var/lib/kubelet, /var/lib/containerd, /var/lib/containers or " +
			"/var/log/pods, without noauto, and /proc/mounts does not list it.",
		Remedy: "mount it before kubelet and the runtime start: order their units after it with RequiresMountsFor=, " +
			"and after cloud-config.service if cloud-init writes /etc/fstab",
		TradeOff: "If the disk never appears, the node does not start.",
		Ref:      "https://github.com/awslabs/amazon-eks-ami/issues/663",
		Inspect:  inspectMounts,
	}
}

func inspectMounts(_ context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("mounted")
	planned, found, err := h.ReadIfAny("/etc/fstab")
	if err != nil || !found {
		s.Skip = "/etc/fstab does not exist"
		return s, err
	}
	text, err := h.Text("/proc/mounts")
	if err != nil {
		return s, err
	}
	var mounted, missing []string
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 1 {
			mounted = append(mounted, f[1])
		}
	}
	for line := range strings.Lines(string(planned)) {
		f := strings.Fields(line)
		if len(f) < 4 || strings.HasPrefix(f[0], "#") || slices.Contains(strings.Split(f[3], ","), "noauto") {
			continue
		}
		at := strings.TrimRight(f[1], "/")
		used := slices.ContainsFunc([]string{"/var/lib/kubelet", "/var/lib/containerd", "/var/lib/containers", "/var/log/pods"},
			func(dir string) bool { return at != "" && strings.HasPrefix(dir+"/", at+"/") })
		if used && !slices.Contains(mounted, at) {
			missing = append(missing, at)
			s.Evidence = append(s.Evidence, checks.Seen("/etc/fstab", strings.Join(f, " ")))
		}
	}
	if missing != nil {
		s.Differs("not mounted: "+strings.Join(missing, ", "), "")
	}
	return s, nil
}
