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

// cgroupVersion: kubelet 1.35 refuses cgroup v1.
func cgroupVersion() checks.Problem {
	return checks.Problem{
		Name: "cgroup.version", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Warn,
		Detects: "The machine runs cgroup v1.",
		Symptom: "kubelet from 1.35 exits at its start; older ones warn and lack memory QoS and PSI.",
		How:     "/proc/mounts has no cgroup2 at /sys/fs/cgroup, and failCgroupV1 is not false in kubelet's configuration.",
		Remedy: "boot with systemd.unified_cgroup_hierarchy=1 (and without systemd.legacy_systemd_cgroup_controller), or set failCgroupV1: " +
			"false",
		TradeOff: "Old JVMs and agents that read cgroup v1 files see no limits under v2; failCgroupV1: false only postpones.",
		Ref:      "https://kubernetes.io/docs/concepts/architecture/cgroups/",
		Inspect:  inspectCgroup,
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
	k, _, err := read(h, &s)
	if err != nil {
		return s, err
	}
	s.Skip = "" // v1 is worth a word before kubelet is configured
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
		return "", fmt.Errorf("looking for cgroups: %w", err)
	}
	mounted := ""
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) >= 3 && f[1] == "/sys/fs/cgroup" {
			mounted = f[2] // the last of several mounts is the visible one
		}
	}
	if mounted == "" {
		return "", errors.New("/proc/mounts has nothing at /sys/fs/cgroup")
	}
	return mounted, nil
}
