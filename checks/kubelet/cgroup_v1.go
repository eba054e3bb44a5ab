package kubelet

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// cgroupV1: kubelet 1.35 does not start on cgroup v1.
func cgroupV1() checks.Problem {
	return checks.Problem{
		Name: "kubelet.cgroup-v1", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Block, Later: true,
		Detects: "The machine runs cgroup v1, and its kubelet refuses to start on it.",
		Symptom: "After an upgrade to 1.35 kubelet restarts forever: \"kubelet is configured to not run on a host using cgroup v1\".",
		How: "/sys/fs/cgroup is not of type cgroup2, and one of these is true: kubelet is 1.35 or later and its configuration does not set " +
			"failCgroupV1: false; failCgroupV1 is true; or memorySwap.swapBehavior is LimitedSwap, which kubelet 1.30 and later refuses on cgroup " +
			"v1. On cgroup v1 the check runs `kubelet --version`.",
		Remedy: "boot with systemd.unified_cgroup_hierarchy=1 on the kernel command line, or, if the kernel has memory and cpuset " +
			"for cgroup v1, set failCgroupV1: false",
		TradeOff: "Old JVMs and agents that read cgroup v1 files see no limits under v2. failCgroupV1: false only postpones the migration.",
		Ref:      "https://github.com/kubernetes/kubernetes/pull/134298",
		Inspect:  inspectCgroupV1,
	}
}

func inspectCgroupV1(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("v2, or a kubelet that runs on v1")
	k, found, err := readConfig(h, &s)
	if !found {
		return s, err
	}
	mounted, err := cgroupMount(h)
	if err != nil || mounted == "cgroup2" {
		return s, err
	}
	s.Evidence = []checks.Evidence{checks.Seen("/proc/mounts", mounted+" at /sys/fs/cgroup")}
	setting := k.Values["failCgroupV1"]
	if setting.Value != "" {
		s.Evidence = append(s.Evidence, checks.Seen(setting.From.Source, setting.From.Text))
	}
	swap := k.Values["memorySwap.swapBehavior"]
	limited := swap.Value == "LimitedSwap" && k.Values["featureGates.NodeSwap"].Value != "false" // on since 1.30
	if limited {
		s.Evidence = append(s.Evidence, checks.Seen(swap.From.Source, swap.From.Text))
	}
	if setting.Value == "false" && !limited {
		return s, nil
	}
	minor, err := h.KubeletMinor(ctx)
	switch refuses := minor >= 35 || minor >= 31 && setting.Value == "true"; {
	case refuses && setting.Value != "false":
		s.Differs(fmt.Sprintf("v1, and kubelet 1.%d", minor), "")
	case limited && minor >= 30:
		s.Differs("v1, and LimitedSwap", "boot with systemd.unified_cgroup_hierarchy=1 on the kernel's command line, or set "+
			"memorySwap.swapBehavior: NoSwap")
	}
	return s, err
}

// cgroupMount returns the type of the file system at /sys/fs/cgroup.
func cgroupMount(h *host.Host) (string, error) {
	text, err := h.Text("/proc/mounts")
	if err != nil {
		return "", fmt.Errorf("finding the cgroup mount: %w", err)
	}
	mounted := ""
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) >= 3 && f[1] == "/sys/fs/cgroup" {
			mounted = f[2] // the last of several mounts is the visible one
		}
	}
	if mounted == "" {
		return "", errors.New("/proc/mounts lists no mount at /sys/fs/cgroup")
	}
	return mounted, nil
}
