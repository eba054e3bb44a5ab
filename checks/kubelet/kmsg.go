package kubelet

import (
	"context"
	"errors"
	"slices"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// kmsg: kubelet reads the kernel log to find processes that the OOM killer ended.
func kmsg() checks.Problem {
	return checks.Problem{
		Name: "kubelet.kmsg", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Block, Later: true,
		Detects: "/dev/kmsg does not exist, as in a container that runs as a node.",
		Symptom: "kubelet restarts forever: \"failed to create kubelet: open /dev/kmsg: no such file or directory\".",
		How: "/dev/kmsg does not exist in the initial user namespace. In another user namespace kubelet may be " +
			"configured to run without it.",
		Remedy: "run `mknod -m 600 /dev/kmsg c 1 11`; for LXC, set `lxc.mount.entry = /dev/kmsg dev/kmsg none " +
			"bind,create=file`",
		TradeOff: "Anyone who may read /dev/kmsg reads the kernel messages of the whole machine.",
		Ref:      "https://github.com/kubernetes/kubernetes/blob/master/pkg/kubelet/oom/oom_watcher_linux.go",
		Inspect:  inspectKmsg,
	}
}

func inspectKmsg(_ context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("/dev/kmsg")
	_, found, err := readConfig(h, &s)
	if !found {
		return s, err
	}
	if exists, err := h.Files.Exists("/dev/kmsg"); err != nil || exists {
		return s, err
	}
	own, err := findMount(h, "/proc/self/mounts", "/dev")
	if err != nil {
		return s, err
	}
	first, err := findMount(h, "/proc/1/mounts", "/dev")
	if err != nil {
		return s, err
	}
	if !slices.Equal(own, first) {
		s.Skip = "this process has its own /dev, like nodegate-watch.service"
		return s, nil
	}
	users, err := h.Text("/proc/self/uid_map")
	if err != nil {
		return s, errors.Join(errors.New("/dev/kmsg is missing, and the user namespace is unknown"), err)
	}
	if strings.Join(strings.Fields(users), " ") != "0 0 4294967295" {
		s.Skip = "in a user namespace, kubelet may be configured to run without it"
		return s, nil
	}
	s.Differs("missing", "")
	return s, nil
}
