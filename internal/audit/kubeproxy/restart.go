package kubeproxy

import (
	"fmt"
	"path"
	"regexp"
	"strings"
	"sync"
	"time"

	"nodegate/internal/audit/proxy"
	"nodegate/internal/host"
)

// RestartOn returns a remedy with the command that restarts kube-proxy as it runs on this node, instead of the command for
// a DaemonSet of kubeadm.
func RestartOn(h *host.Host, remedy string) string {
	if !strings.Contains(remedy, proxy.DeletePod) {
		return remedy
	}
	return strings.ReplaceAll(remedy, proxy.DeletePod, restartCommand(h))
}

// RestartAll does the same for the remedies of all findings. It searches kube-proxy's process only once: an audit may have a
// thousand findings. A kube-proxy that has just started needs no restart. Commands name the node, if its name in the API is known.
func RestartAll(h *host.Host, node string, findings []proxy.Finding) {
	on := sync.OnceValue(func() string { return restartCommand(h) })
	young := sync.OnceValue(func() string {
		began := (&Presence{Host: h}).Began()
		if runs := time.Since(began).Round(time.Second); !began.IsZero() && runs < time.Minute {
			return fmt.Sprintf("run the audit again in a minute: kube-proxy started %s ago and may not have written all of its rules. If it "+
				"keeps restarting, find the reason in its log: `crictl logs $(crictl ps -a -q --name kube-proxy | sed -n 2p)`, or "+
				"`journalctl -u kube-proxy`", runs)
		}
		return ""
	})
	for i := range findings {
		if f := &findings[i]; strings.Contains(f.Remedy, proxy.DeletePod) && young() != "" {
			f.Remedy = young()
		} else if strings.Contains(f.Remedy, proxy.DeletePod) {
			f.Remedy = strings.ReplaceAll(f.Remedy, proxy.DeletePod, on())
		}
		if node != "" {
			findings[i].Remedy = regexp.MustCompile(`([ =])NODE\b`).ReplaceAllString(findings[i].Remedy, "${1}"+node)
		}
	}
}

// restartCommand returns the command that restarts kube-proxy on this node: of its systemd unit, which is the whole of k3s or MicroK8s,
// or of its container, which kubelet then starts again. It is DeletePod if kube-proxy runs in a DaemonSet, and if that is unknown.
func restartCommand(h *host.Host) string {
	process, found, err := findProxy(h)
	if err != nil || !found {
		if isStaticPod(h) {
			return restartContainer
		}
		return proxy.DeletePod
	}
	unit, _ := h.ServiceOf(process.PID)
	switch {
	case unit != "":
		return "systemctl restart " + strings.TrimSuffix(unit, ".service")
	case isStaticPod(h):
		return restartContainer
	}
	switch name := command(process); {
	case name == "kubelite":
		return "snap restart microk8s.daemon-kubelite"
	case name == "k3s", strings.HasPrefix(name, "k3s-"):
		return "systemctl restart " + map[bool]string{true: "k3s-agent", false: "k3s"}[strings.Contains(strings.Join(process.Args, " "), "agent")]
	}
	return proxy.DeletePod
}

const restartContainer = "crictl stop $(crictl ps -q --name kube-proxy)"

// isStaticPod reports whether a directory of static Pods has kube-proxy's manifest, as with kops, GKE and RKE2.
func isStaticPod(h *host.Host) bool {
	for _, dir := range []string{"/etc/kubernetes/manifests", "/var/lib/rancher/rke2/agent/pod-manifests"} {
		for _, name := range []string{"kube-proxy.manifest", "kube-proxy.yaml"} {
			if there, err := h.Files.Exists(path.Join(dir, name)); err == nil && there {
				return true
			}
		}
	}
	return false
}
