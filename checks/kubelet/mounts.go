package kubelet

import (
	"cmp"
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// mounts: files that kubelet and its runtime write before their disk is mounted are hidden by the mount.
func mounts() checks.Problem {
	return checks.Problem{
		Name: "kubelet.mounts", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Warn, Later: true, AtBoot: true,
		Detects: "/etc/fstab has a file system for a directory of kubelet or the container runtime, and it is not " +
			"mounted, for example because cloud-init has not finished; or kubelet's directory is mounted with noexec, nosuid or nodev; " +
			"or / is not shared.",
		Symptom: "The node's image store, logs or Pods disappear when the disk is mounted over them; the hidden files " +
			"keep filling the root disk. With noexec, nosuid or nodev, programs, setuid programs or devices in Pods' volumes fail. If / is not " +
			"shared, the runtime refuses Pods with Bidirectional mounts, such as CSI drivers.",
		How: "/etc/fstab has a mount point at or above /var/lib/kubelet, /var/lib/containerd, /var/lib/containers or /var/log/pods, without " +
			"noauto, and /proc/mounts does not list it. The options are those of the file system of --root-dir.",
		Remedy: "mount it before kubelet and the runtime start: order their units after it with RequiresMountsFor=, " +
			"and after cloud-config.service if cloud-init writes /etc/fstab",
		TradeOff: "If the disk never appears, the node does not start.",
		Ref:      "https://github.com/awslabs/amazon-eks-ami/issues/663",
		Inspect:  inspectMounts,
	}
}

func inspectMounts(_ context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("mounted, for programs and devices")
	planned, _, err := h.ReadIfAny("/etc/fstab")
	if err != nil {
		return s, err
	}
	text, found, err := h.ReadIfAny("/proc/mounts")
	if err != nil || !found {
		s.Skip = "there is no mount table"
		return s, err
	}
	var mounted, missing []string
	for line := range strings.Lines(string(text)) {
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
		// at is "" for the root, which is always mounted.
		used := slices.ContainsFunc([]string{"/var/lib/kubelet", "/var/lib/containerd", "/var/lib/containers", "/var/log/pods"},
			func(dir string) bool { return at != "" && strings.HasPrefix(dir+"/", at+"/") })
		if used && !slices.Contains(mounted, at) {
			missing = append(missing, at)
			s.Evidence = append(s.Evidence, checks.Seen("/etc/fstab", strings.Join(f, " ")))
		}
	}
	if missing != nil {
		s.Differs("not mounted: "+strings.Join(missing, ", "), "")
		return s, nil
	}
	return s, judgeOptions(h, &s)
}

// judgeOptions finds options of the file system of kubelet's directory that the volumes of Pods inherit.
func judgeOptions(h *host.Host, s *checks.State) error {
	k, err := h.Kubelet()
	if err != nil {
		s.Cause = "kubelet.config"
		return err
	}
	table, found, err := h.ReadIfAny("/proc/1/mountinfo") // nodegate's services have mounts of their own
	if err != nil && !errors.Is(err, host.ErrNotRecorded) {
		return err
	}
	root := regexp.MustCompile(`(?m)^\d+ \d+ \S+ \S+ / .*? - `).FindAllString(string(table), -1)
	if k.Found && found && len(root) > 0 && !strings.Contains(root[len(root)-1], " shared:") {
		s.Evidence = append(s.Evidence, checks.Seen("/proc/1/mountinfo", root[len(root)-1]))
		s.Differs("/ is not shared", "run `mount --make-rshared /`, at each boot before the runtime starts; systemd does that by itself")
		return nil
	}
	dir := cmp.Or(k.Flags["root-dir"].Value, "/var/lib/kubelet")
	mounted, err := findMount(h, "/proc/mounts", resolveLinks(h.Files, dir))
	if err != nil || len(mounted) < 4 {
		return err
	}
	var wrong []string
	for o := range strings.SplitSeq(mounted[3], ",") {
		if slices.Contains([]string{"noexec", "nosuid", "nodev"}, o) {
			wrong = append(wrong, o)
		}
	}
	if wrong != nil {
		s.Evidence = append(s.Evidence, checks.Seen("/proc/mounts", strings.Join(mounted[:4], " ")))
		s.Differs(dir+" is "+strings.Join(wrong, ", "), "run `mount -o remount,exec,suid,dev "+mounted[1]+"`, and correct /etc/fstab")
	}
	return nil
}
