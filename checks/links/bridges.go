package links

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"nodegate/checks"
	"nodegate/internal/host"
)

// listPodBridges returns the bridges that have a veth port: the Pod networks. A bridge without ports
// carries no traffic, and a bridge with only physical ports does not connect Pods.
func listPodBridges(ctx context.Context, h *host.Host) ([]host.Link, error) {
	links, err := h.Links.List(ctx)
	if err != nil {
		return nil, err
	}
	withPods := map[string]bool{}
	for _, l := range links {
		if l.Kind == "veth" && l.Master != "" {
			withPods[l.Master] = true
		}
	}
	var bridges []host.Link
	for _, l := range links {
		if l.Kind == "bridge" && withPods[l.Name] {
			bridges = append(bridges, l)
		}
	}
	return bridges, nil
}

// bridgeCalls holds the settings that make a bridge pass packets to a packet filter: the global
// parameter and each bridge's own switch. One of the two is enough.
type bridgeCalls struct {
	loaded   bool // br_netfilter is loaded: without it the switches do nothing
	off      []string
	evidence []checks.Evidence
}

// readBridgeCalls reads both settings for iptables. It skips a bridge that is removed in the meantime.
func readBridgeCalls(h *host.Host, bridges []host.Link) (bridgeCalls, error) {
	var calls bridgeCalls
	const key = "net/bridge/bridge-nf-call-iptables"
	all, err := h.ReadSysctl(key)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		calls.evidence = []checks.Evidence{checks.Seen("/proc/sys/"+key, "no such parameter")}
		return calls, nil
	case err != nil:
		return calls, err
	}
	calls.loaded = true
	calls.evidence = []checks.Evidence{checks.Seen("/proc/sys/"+key, all)}
	for _, b := range bridges {
		name := "/sys/class/net/" + b.Name + "/bridge/nf_call_iptables"
		own, err := h.Text(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return calls, fmt.Errorf("reading nf_call_* of bridge %s: %w", b.Name, err)
		}
		calls.evidence = append(calls.evidence, checks.Seen(name, own))
		if all == "0" && own == "0" {
			calls.off = append(calls.off, b.Name)
		}
	}
	return calls, nil
}
