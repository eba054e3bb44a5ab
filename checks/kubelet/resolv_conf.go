package kubelet

import (
	"context"
	"errors"
	"net/netip"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/config"
	"nodegate/policy"
)

// resolvConf: the resolvers that kubelet gives to Pods must be reachable from a Pod.
func resolvConf() checks.Problem {
	return checks.Problem{
		Name: "kubelet.resolv-conf", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Block, Later: true,
		Detects: "The resolv.conf that kubelet gives to Pods is missing, or names a resolver that no Pod can reach: a loopback address such as " +
			"systemd-resolved's stub, or a link-local one.",
		Symptom: "CoreDNS exits: \"Loop (127.0.0.1:... -> :53) detected for zone .\"; or no Pod starts: \"open " +
			"/etc/resolv.conf: no such file\".",
		How: "The file named by resolvConf in kubelet's configuration (/etc/resolv.conf by default) is missing or has " +
			"a nameserver in 127.0.0.0/8 or fe80::/10, or ::1. Only a missing file, without which no Pod starts, is more than a warning.",
		Remedy: "set resolvConf: /run/systemd/resolve/resolv.conf in kubelet's configuration, as kubeadm does if " +
			"systemd-resolved runs",
		TradeOff: "Pods with dnsPolicy Default then query the network's resolvers directly, without systemd-resolved's " +
			"cache and per-domain routing.",
		Ref:     "https://coredns.io/plugins/loop/#troubleshooting-loops-in-kubernetes-clusters",
		Inspect: inspectResolvConf,
	}
}

func inspectResolvConf(_ context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("resolvers that a Pod can reach")
	k, found, err := readConfig(h, &s)
	if !found {
		return s, err
	}
	name := "/etc/resolv.conf"
	if setting, told := k.Values["resolvConf"]; told {
		name = setting.Value
		s.Evidence = []checks.Evidence{checks.Seen(setting.From.Source, setting.From.Text)}
	}
	if name == "" {
		s.Skip = "kubelet's resolvConf is empty: Pods do not use the node's resolvers"
		return s, nil
	}
	text, found, err := config.ReadIfAny(h.Files, name)
	if err != nil {
		return s, err
	}
	if !found {
		remedy, err := otherResolvConf(h, name)
		s.Differs(name+" is missing", remedy)
		return s, err
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] != "nameserver" {
			continue
		}
		// Link-local IPv4 is left out: a Pod reaches 169.254.169.253 of a cloud by the default route. Link-local IPv6 needs a link of the node.
		if a, err := netip.ParseAddr(f[1]); err == nil && (a.IsLoopback() || a.Is6() && a.IsLinkLocalUnicast()) {
			s.Evidence = append(s.Evidence, checks.Seen(name, strings.TrimSpace(line)))
			remedy, err := otherResolvConf(h, name)
			if err != nil {
				return s, err
			}
			s.Differs(map[bool]string{true: "loopback", false: "link-local"}[a.IsLoopback()]+" resolver "+f[1], remedy)
			s.Minor = true
		}
	}
	return s, nil
}

const resolvedConf = "/run/systemd/resolve/resolv.conf"

// otherResolvConf returns the remedy for a resolv.conf that is missing or of no use to Pods: a file that exists on this machine.
func otherResolvConf(h *host.Host, name string) (string, error) {
	resolved, err := h.Files.Exists(resolvedConf)
	if errors.Is(err, host.ErrNotRecorded) { // an older snapshot
		resolved, err = name != resolvedConf, nil
	}
	switch {
	case err != nil:
		return "", err
	case resolved && name != resolvedConf:
		return "", nil // the general remedy
	case name == resolvedConf && !resolved:
		return "start systemd-resolved, which writes " + resolvedConf + " (`systemctl enable --now systemd-resolved`); or, without it, set " +
			"resolvConf: /etc/resolv.conf in kubelet's configuration", nil
	}
	return "create a file with the network's resolvers (`nameserver ADDRESS`), and set resolvConf to it in kubelet's configuration", nil
}
