package kubelet

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"nodegate/checks"
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
	return inspectPort(h, cmp.Or(k.Values["address"].Value, "0.0.0.0"), cmp.Or(k.Values["port"].Value, "10250"))
}

// inspectPort reports another program that listens on kubelet's port and keeps kubelet from binding its address.
func inspectPort(h *host.Host, address, wanted string) (checks.State, error) {
	own, err := netip.ParseAddr(address)
	if err != nil { // kubelet then listens on every address (net.ParseIP)
		own = netip.IPv6Unspecified()
	}
	s := checks.Passing("free, or used by kubelet")
	if h.PortIsFree(wanted) {
		return s, nil
	}
	var taken []string
	remedy := ""
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, found, err := h.ReadIfAny(table)
		if err != nil {
			return s, err
		}
		if !found {
			continue // a kernel without IPv6
		}
		for line := range strings.Lines(string(text)) {
			at, inode, listens := parseListener(line)
			port := strconv.Itoa(int(at.Port()))
			if !listens || port != wanted || at.Addr() != own.Unmap() && !at.Addr().IsUnspecified() && !own.IsUnspecified() {
				continue
			}
			owner, err := findOwner(h, inode)
			if err != nil {
				return s, err
			}
			s.Evidence = append(s.Evidence, checks.Seen(table, "port "+port+": "+cmp.Or(owner, "unknown process")))
			kubelets, err := ownKubelets(h)
			if err != nil {
				return s, err
			}
			switch runs, is := kubelets[owner]; {
			case is:
			case owner != "":
				taken = append(taken, "port "+port+" is used by "+owner)
				pid := regexp.MustCompile(`\d+\)$`).FindString(owner)
				cgroups, _ := h.Files.ReadFile("/proc/" + strings.TrimSuffix(pid, ")") + "/cgroup") // else the program's name must do
				if unit := regexp.MustCompile(`(?m)/([^/\n]+\.service)$`).FindSubmatch(cgroups); unit != nil {
					remedy = "stop its unit (`systemctl disable --now " + string(unit[1]) + "`), or set port in kubelet's configuration"
				}
			case len(kubelets) == 0:
				return s, fmt.Errorf("port %s is in use, and its process is not visible", port)
			default: // nodegate-watch.service may not read kubelet's /proc/PID/fd. A kubelet without its port exits soon.
				for _, age := range kubelets {
					runs = max(runs, age)
				}
				if runs < startTime {
					return s, fmt.Errorf("port %s is in use, its process is not visible, and kubelet has only run for %s", port, runs)
				}
			}
		}
	}
	if taken != nil {
		s.Differs(strings.Join(taken, ", "), remedy)
	}
	return s, nil
}

// startTime bounds the time in which a kubelet that cannot bind its port exits.
const startTime = 30 * time.Second

// ownKubelets returns the age of each process of this node that is kubelet or contains it (k3s, RKE2, MicroK8s, hyperkube), by name and
// PID as findOwner returns them.
func ownKubelets(h *host.Host) (map[string]time.Duration, error) {
	names := []string{"kubelet", "k3s", "k3s-server", "k3s-agent", "rke2", "kubelite", "hyperkube"}
	processes, err := h.Processes()
	if err != nil {
		return nil, err
	}
	found := map[string]time.Duration{}
	for _, p := range processes {
		if slices.Contains(names, p.Name) {
			up, err := h.Uptime()
			if err != nil {
				return nil, err
			}
			found[fmt.Sprintf("%s (pid %d)", p.Name, p.PID)] = up - p.Started
		}
	}
	return found, nil
}

// parseListener parses a line of /proc/net/tcp or tcp6: "0: 0100007F:280A 00000000:0000 0A ... INODE ..."; state 0A is LISTEN.
func parseListener(line string) (at netip.AddrPort, inode string, listens bool) {
	f := strings.Fields(line)
	if len(f) < 10 || f[3] != "0A" {
		return at, "", false
	}
	at, listens = host.KernelAddress(f[1])
	return at, f[9], listens
}

// findOwner returns the name and PID of the process that has a socket open, or "".
func findOwner(h *host.Host, inode string) (string, error) {
	pids, err := h.Files.ReadDir("/proc")
	if err != nil {
		return "", err
	}
	for _, pid := range pids {
		if _, err := strconv.Atoi(pid); err != nil {
			continue
		}
		// A process may have ended, and the files of other users' processes may be unreadable.
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

// healthzPort: kubelet runs without its healthz endpoint, so its clients report the node as unhealthy.
func healthzPort() checks.Problem {
	return checks.Problem{
		Name: "kubelet.healthz-port", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Warn,
		Detects:  "Another program listens on kubelet's healthz port.",
		Symptom:  "kubelet runs and logs \"Failed to start healthz server\" every 5 s; kubeadm waits for the healthz endpoint and times out.",
		How:      "Like kubelet.ports, with healthzBindAddress (127.0.0.1) and healthzPort (10248; 0 disables it).",
		Remedy:   "stop the other program, or set healthzPort in kubelet's configuration",
		TradeOff: "kubeadm queries port 10248 only.",
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
