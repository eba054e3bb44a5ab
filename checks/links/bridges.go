package links

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"nodegate/checks"
	"nodegate/internal/host"
)

// linkBridges returns the bridges that have a veth as port: the networks of Pods.
// A bridge without ports carries nothing, and one with only physical ports is no
// Pod network.
func linkBridges(ctx context.Context, h *host.Host) ([]host.Link, error) {
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

// bridgeCalls is what decides whether a bridge passes packets to a packet filter:
// the parameter, or each bridge's own switch. One of the two is enough.
type bridgeCalls struct {
	loaded   bool // br_netfilter is loaded: without it the switches do nothing
	off      []string
	on       []string
	evidence []checks.Evidence
}

// readBridgeCalls reads both, for the filter iptables or ip6tables. A bridge
// that vanishes meanwhile is skipped.
func readBridgeCalls(h *host.Host, filter string, bridges []host.Link) (bridgeCalls, error) {
	var calls bridgeCalls
	key := "net/bridge/bridge-nf-call-" + filter
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
		name := "/sys/class/net/" + b.Name + "/bridge/nf_call_" + filter
		own, err := h.Text(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return calls, fmt.Errorf("reading the switch of bridge %s: %w", b.Name, err)
		}
		calls.evidence = append(calls.evidence, checks.Seen(name, own))
		if all != "0" || own != "0" {
			calls.on = append(calls.on, b.Name)
		} else {
			calls.off = append(calls.off, b.Name)
		}
	}
	return calls, nil
}
