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

// cgroupVersion: kubelet 1.35 refuses to run on cgroup v1.
func cgroupVersion() checks.Problem {
	return checks.Problem{
		Name: "cgroup.version", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Warn,
		Detects: "The machine runs cgroup v1.",
		Symptom: "kubelet 1.35 and later exits at startup; older versions log a warning and lack memory QoS and PSI.",
		How: "/proc/mounts has no cgroup2 file system at /sys/fs/cgroup, and kubelet's configuration does not set " +
			"failCgroupV1: false.",
		Remedy: "boot with systemd.unified_cgroup_hierarchy=1 (and without systemd.legacy_systemd_cgroup_controller), " +
			"or set failCgroupV1: false",
		TradeOff: "Old JVMs and agents that read cgroup v1 files see no limits under v2. failCgroupV1: false only " +
			"postpones the migration.",
		Ref:     "https://kubernetes.io/docs/concepts/architecture/cgroups/",
		Inspect: inspectCgroup,
	}
}

func inspectCgroup(_ context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("v2")
	mounted, err := cgroupMount(h)
	if err != nil {
		return s, err
	}
	s.Evidence = []checks.Evidence{checks.Seen("/proc/mounts", mounted+" at /sys/fs/cgroup")}
	if mounted == "cgroup2" {
		return s, nil
	}
	k, _, err := readConfig(h, &s)
	if err != nil {
		return s, err
	}
	s.Skip = "" // report v1 even before kubelet is configured
	s.Differs("v1", "")
	if setting, told := k.Values["failCgroupV1"]; told {
		s.Evidence = append(s.Evidence, checks.Seen(setting.From.Source, setting.From.Text))
		if setting.Value == "false" {
			s.Want, s.Got, s.Pass = "v2, or failCgroupV1 false", "v1, and failCgroupV1 false", true
		}
	}
	return s, nil
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
