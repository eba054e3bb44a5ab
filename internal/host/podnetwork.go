package host

import (
	"fmt"
	"strconv"
	"strings"
)

// PodNetwork returns the file of the network namespace of a Pod of this node, NAMESPACE/NAME. It finds the Pod's UID by its
// directory of logs, and a process by its cgroup.
func (h *Host) PodNetwork(pod string) (path string, err error) {
	namespace, name, ok := strings.Cut(pod, "/")
	if !ok {
		namespace, name = "default", pod
	}
	const logs = "/var/log/pods"
	dirs, err := h.Files.ReadDir(logs)
	if err != nil {
		return "", fmt.Errorf("finding Pod %s/%s: %w", namespace, name, err)
	}
	var uids []string
	for _, dir := range dirs {
		if uid, ok := strings.CutPrefix(dir, namespace+"_"+name+"_"); ok && !strings.Contains(uid, "_") {
			uids = append(uids, uid, strings.ReplaceAll(uid, "-", "_")) // systemd's cgroups have no dash
		}
	}
	if uids == nil {
		return "", fmt.Errorf("this node has no Pod %s/%s: %s has no directory for it", namespace, name, logs)
	}
	processes, err := h.Files.ReadDir("/proc")
	if err != nil {
		return "", fmt.Errorf("listing processes: %w", err)
	}
	for _, pid := range processes {
		if _, err := strconv.Atoi(pid); err != nil {
			continue
		}
		cgroups, err := h.Files.ReadFile("/proc/" + pid + "/cgroup")
		if err != nil {
			continue // it has ended
		}
		for _, uid := range uids {
			if strings.Contains(string(cgroups), "pod"+uid) {
				return "/proc/" + pid + "/ns/net", nil
			}
		}
	}
	return "", fmt.Errorf("no process of Pod %s/%s runs on this node; run the probe in the host's PID namespace, "+
		"or name the file with --netns", namespace, name)
}
