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

// kmsg: kubelet reads the kernel's log for processes that were killed for memory.
func kmsg() checks.Problem {
	return checks.Problem{
		Name: "kubelet.kmsg", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Block,
		Detects: "There is no /dev/kmsg, as in a container that runs as a node.",
		Symptom: "kubelet restarts for ever: \"failed to create kubelet: open /dev/kmsg: no such file or directory\".",
		How:     "/dev/kmsg does not exist, and this is the machine's own user namespace: elsewhere kubelet may be told to do without.",
		Remedy: "run: mknod -m 600 /dev/kmsg c 1 11; for LXC, let the container have it: " +
			"lxc.mount.entry = /dev/kmsg dev/kmsg none bind,create=file",
		TradeOff: "Who may read /dev/kmsg reads the messages of the whole machine.",
		Ref:      "https://github.com/kubernetes/kubernetes/blob/master/pkg/kubelet/oom/oom_watcher_linux.go",
		Inspect:  inspectKmsg,
	}
}

func inspectKmsg(_ context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("/dev/kmsg")
	_, found, err := read(h, &s)
	if !found {
		return s, err
	}
	if exists, err := h.Files.Exists("/dev/kmsg"); err != nil || exists {
		return s, err
	}
	own, err := mountOf(h, "/proc/self/mounts", "/dev")
	if err != nil {
		return s, err
	}
	first, err := mountOf(h, "/proc/1/mounts", "/dev")
	if err != nil {
		return s, err
	}
	if !slices.Equal(own, first) {
		s.Skip = "this process has a /dev of its own, as nodegate-watch.service has"
		return s, nil
	}
	users, err := h.Text("/proc/self/uid_map")
	if err != nil {
		return s, errors.Join(errors.New("there is no /dev/kmsg, and the user namespace is not known"), err)
	}
	if strings.Join(strings.Fields(users), " ") != "0 0 4294967295" {
		s.Skip = "in a user namespace, kubelet may be told to do without"
		return s, nil
	}
	s.Differs("missing", "")
	return s, nil
}
