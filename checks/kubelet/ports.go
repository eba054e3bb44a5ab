package kubelet

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"nodegate/checks"
	"nodegate/internal/audit"
	"nodegate/internal/host"
	"nodegate/policy"
)

// ports: kubelet exits if another program listens on its port.
func ports() checks.Problem {
	return checks.Problem{
		Name: "kubelet.ports", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Block, Later: true,
		Detects: "Another program listens on kubelet's port and address.",
		Symptom: "kubelet exits: \"listen tcp 0.0.0.0:10250: bind: address already in use\".",
		How: "kubelet's port (10250) cannot be bound. /proc/net/tcp or tcp6 has a listening socket on it whose address " +
			"is kubelet's, or one of the two is the wildcard address. The process that owns the socket, found through /proc/PID/fd, is " +
			"neither kubelet nor a program that contains kubelet (k3s, RKE2, MicroK8s' kubelite, hyperkube), run by root in this network " +
			"namespace. If the owner is hidden from nodegate, as from nodegate-watch.service, the port is kubelet's once kubelet has run for 30 s.",
		Remedy:   "stop the other program, or set port in kubelet's configuration",
		TradeOff: "If kubelet's port changes, the API server, metrics-server and network policies must use the new one.",
		Ref:      "https://kubernetes.io/docs/reference/networking/ports-and-protocols/",
		Inspect:  inspectPorts,
	}
}

func inspectPorts(_ context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	k, err := h.Kubelet()
	if err != nil {
		return checks.State{Cause: "kubelet.config"}, err
	}
	return inspectPort(h, cmp.Or(k.Values["address"].Value, "0.0.0.0"), cmp.Or(k.Values["port"].Value, "10250"), func(age time.Duration) bool {
		const startTime = 30 * time.Second // bounds the time in which a kubelet that cannot bind its port exits
		return age >= startTime
	})
}

// inspectPort reports another program that listens on kubelet's port and keeps kubelet from binding its address. nodegate-watch.service
// may not read kubelet's /proc/PID/fd: isOwn then reports whether a kubelet of this age must be the owner.
func inspectPort(h *host.Host, address, wanted string, isOwn func(age time.Duration) bool) (checks.State, error) {
	own, err := netip.ParseAddr(address)
	if err != nil { // kubelet then listens on every address (net.ParseIP)
		own = netip.IPv6Unspecified()
	}
	s := checks.Passing("free, or used by kubelet")
	if h.PortIsFree(wanted) {
		return s, nil
	}
	listeners, err := h.Listeners("/proc")
	if err != nil {
		return s, err
	}
	var taken []string
	remedy := ""
	for _, l := range listeners {
		port := strconv.Itoa(int(l.Port()))
		if port != wanted || l.Addr() != own.Unmap() && !l.Addr().IsUnspecified() && !own.IsUnspecified() {
			continue
		}
		pid, owner, err := findOwner(h, l.Inode)
		if err != nil {
			return s, err
		}
		s.Evidence = append(s.Evidence, checks.Seen(l.Table, "port "+port+": "+cmp.Or(owner, "unknown process")))
		kubelets, err := ownKubelets(h)
		if err != nil {
			return s, err
		}
		switch _, is := kubelets[pid]; {
		case is, owner == "" && len(kubelets) > 0 && isOwn(slices.Max(slices.Collect(maps.Values(kubelets)))):
		case owner != "":
			taken = append(taken, "port "+port+" is used by "+owner)
			if unit, _ := h.ServiceOf(pid); unit != "" { // else the program's name must do
				remedy = "stop its unit (`systemctl disable --now " + unit + "`), or set port in kubelet's configuration"
			}
		default:
			return s, fmt.Errorf("port %s is in use, and its process is not visible", port)
		}
	}
	if taken != nil {
		s.Differs(strings.Join(taken, ", "), remedy)
	}
	return s, nil
}

// ownKubelets returns the PID and age of each process of this node that is kubelet or contains it (k3s, RKE2, MicroK8s, hyperkube).
func ownKubelets(h *host.Host) (map[int]time.Duration, error) {
	names := []string{"kubelet", "k3s", "k3s-server", "k3s-agent", "rke2", "kubelite", "hyperkube"}
	processes, err := h.Processes()
	if err != nil {
		return nil, err
	}
	found := map[int]time.Duration{}
	for _, p := range processes {
		if slices.Contains(names, p.Name) {
			up, err := h.Uptime()
			if err != nil {
				return nil, err
			}
			found[p.PID] = up - p.Started
		}
	}
	return found, nil
}

// findOwner returns the PID and the name of the process that has a socket open, or "".
func findOwner(h *host.Host, inode string) (pid int, name string, err error) {
	all, err := h.Files.ReadDir("/proc")
	for _, dir := range all {
		pid, notProcess := strconv.Atoi(dir)
		if notProcess != nil {
			continue
		}
		// A process may have ended, and the files of other users' processes may be unreadable.
		if open, _ := h.Sockets(pid); !open[inode] {
			continue
		}
		if name, err := h.Text("/proc/" + dir + "/comm"); err == nil {
			return pid, name + " (pid " + dir + ")", nil
		}
	}
	return 0, "", err
}

// healthzPort: kubelet runs without its healthz endpoint, so its clients report the node as unhealthy.
func healthzPort() checks.Problem {
	return checks.Problem{
		Name: "kubelet.healthz-port", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Warn,
		Detects: "Another program listens on kubelet's healthz port.",
		Symptom: "kubelet runs and logs \"Failed to start healthz server\" every 5 s; kubeadm waits for the healthz endpoint and times out.",
		How: "Like kubelet.ports, with healthzBindAddress (127.0.0.1) and healthzPort (10248; 0 disables it). If the owner is hidden, /healthz " +
			"must answer \"ok\".",
		Remedy:   "stop the other program, or set healthzPort in kubelet's configuration",
		TradeOff: "kubeadm queries port 10248 only.",
		Ref:      "https://kubernetes.io/docs/reference/networking/ports-and-protocols/",
		Inspect: func(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
			k, err := h.Kubelet()
			if err != nil {
				return checks.State{Cause: "kubelet.config"}, err
			}
			address, port := cmp.Or(k.Values["healthzBindAddress"].Value, "127.0.0.1"), cmp.Or(k.Values["healthzPort"].Value, "10248")
			return inspectPort(h, address, port, func(time.Duration) bool {
				if !h.Live() {
					return false
				}
				page, _, err := audit.Page(ctx, "http://"+net.JoinHostPort(address, port)+"/healthz")
				return err == nil && string(page) == "ok"
			})
		},
	}
}
