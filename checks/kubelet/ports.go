package kubelet

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// ports: kubelet exits where another program listens on its port.
func ports() checks.Problem {
	return checks.Problem{
		Name: "kubelet.ports", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Block, Later: true,
		Detects: "Another program listens on kubelet's port, at its address.",
		Symptom: "kubelet exits: \"listen tcp 0.0.0.0:10250: bind: address already in use\".",
		How: "Kubelet's port (10250) cannot be bound to, /proc/net/tcp and tcp6 have a listening socket there, at kubelet's address or one of " +
			"both being every address, and the process that has it open, by /proc/PID/fd, is not kubelet, and no program that has kubelet in " +
			"it (k3s, RKE2, MicroK8s' kubelite, hyperkube).",
		Remedy:   "stop the other program, or set port in kubelet's configuration",
		TradeOff: "On another port the API server, metrics-server and network policies must follow.",
		Ref:      "https://kubernetes.io/docs/reference/networking/ports-and-protocols/",
		Inspect:  inspectPorts,
	}
}

func inspectPorts(_ context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	k, err := h.Kubelet()
	if err != nil {
		return checks.State{Cause: "kubelet.config"}, err
	}
	return inspectPort(h, cmp.Or(k.Values["address"].Value, "0.0.0.0"), cmp.Or(k.Values["port"].Value, "10250"))
}

// inspectPort reports who else listens on a port of kubelet, so that kubelet cannot at its address.
func inspectPort(h *host.Host, address, wanted string) (checks.State, error) {
	own, err := netip.ParseAddr(address)
	if err != nil { // kubelet takes it for every address (net.ParseIP)
		own = netip.IPv6Unspecified()
	}
	s := checks.Passing("free, or kubelet's own")
	if h.PortIsFree(wanted) {
		return s, nil
	}
	var taken []string
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, found, err := h.ReadIfAny(table)
		if err != nil {
			return s, err
		}
		if !found {
			continue // a kernel without IPv6
		}
		for line := range strings.Lines(string(text)) {
			at, inode, listens := listener(line)
			port := strconv.Itoa(int(at.Port()))
			if !listens || port != wanted || at.Addr() != own.Unmap() && !at.Addr().IsUnspecified() && !own.IsUnspecified() {
				continue
			}
			owner, err := ownerOf(h, inode)
			if err != nil {
				return s, err
			}
			s.Evidence = append(s.Evidence, checks.Seen(table, "port "+port+": "+cmp.Or(owner, "unknown process")))
			switch name, _, _ := strings.Cut(owner, " "); {
			case isKubelet(name):
			case name == "":
				// nodegate-watch.service may not look into kubelet. Where kubelet runs, the port is taken to be its own.
				if runs, err := kubeletRuns(h); err != nil || !runs {
					return s, cmp.Or(err, fmt.Errorf("port %s is taken, and the process that listens there is not visible", port))
				}
			default:
				taken = append(taken, "port "+port+" by "+owner)
			}
		}
	}
	if taken != nil {
		s.Differs(strings.Join(taken, ", "), "")
	}
	return s, nil
}

func kubeletRuns(h *host.Host) (bool, error) {
	processes, err := h.Processes()
	return slices.ContainsFunc(processes, func(p host.Process) bool { return isKubelet(p.Name) }), err
}

// isKubelet reports whether a process of that name is kubelet, or has it in it: k3s, RKE2, MicroK8s, hyperkube.
func isKubelet(name string) bool {
	return slices.Contains([]string{"kubelet", "k3s", "k3s-server", "k3s-agent", "rke2", "kubelite", "hyperkube"}, name)
}

// listener reads a line of /proc/net/tcp or tcp6: "0: 0100007F:280A 00000000:0000 0A ... INODE ..."; state 0A is LISTEN.
func listener(line string) (at netip.AddrPort, inode string, listens bool) {
	f := strings.Fields(line)
	if len(f) < 10 || f[3] != "0A" {
		return at, "", false
	}
	at, listens = host.KernelAddress(f[1])
	return at, f[9], listens
}

// ownerOf returns the name and number of the process that has a socket open, or "".
func ownerOf(h *host.Host, inode string) (string, error) {
	pids, err := h.Files.ReadDir("/proc")
	if err != nil {
		return "", err
	}
	for _, pid := range pids {
		if _, err := strconv.Atoi(pid); err != nil {
			continue
		}
		// Processes end while they are looked at, and those of others cannot be.
		open, err := h.Files.ReadDir("/proc/" + pid + "/fd")
		if err != nil {
			continue
		}
		for _, fd := range open {
			if to, err := h.Files.ReadLink("/proc/" + pid + "/fd/" + fd); err != nil || to != "socket:["+inode+"]" {
				continue
			}
			name, err := h.Text("/proc/" + pid + "/comm")
			if err != nil {
				continue
			}
			return name + " (pid " + pid + ")", nil
		}
	}
	return "", nil
}

// healthzPort: kubelet runs without its health page, and what asks it calls the node broken.
func healthzPort() checks.Problem {
	return checks.Problem{
		Name: "kubelet.healthz-port", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Warn,
		Detects:  "Another program listens on the port of kubelet's health page.",
		Symptom:  "kubelet runs and logs \"Failed to start healthz server\" every 5 s; kubeadm waits for it, and gives up.",
		How:      "As kubelet.ports, with healthzBindAddress (127.0.0.1) and healthzPort (10248, 0 for none).",
		Remedy:   "stop the other program, or set healthzPort in kubelet's configuration",
		TradeOff: "kubeadm asks port 10248 and no other.",
		Ref:      "https://kubernetes.io/docs/reference/networking/ports-and-protocols/",
		Inspect: func(_ context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
			k, err := h.Kubelet()
			if err != nil {
				return checks.State{Cause: "kubelet.config"}, err
			}
			return inspectPort(h, cmp.Or(k.Values["healthzBindAddress"].Value, "127.0.0.1"), cmp.Or(k.Values["healthzPort"].Value, "10248"))
		},
	}
}
