package links

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// acceptRA detects a link that ignores router advertisements because the machine forwards: its IPv6 default route expires.
func acceptRA() checks.Problem {
	return checks.Problem{
		Name: "accept-ra.forwarding", Stages: []checks.Stage{checks.Run}, Severity: policy.Warn,
		Detects: "The IPv6 default route comes from a router advertisement, and its link ignores further advertisements because it forwards.",
		Symptom: "About 30 minutes after forwarding is enabled, IPv6 traffic to other networks stops. " +
			"Restarting the network restores it for another 30 minutes.",
		How: "/proc/net/ipv6_route has a default route that the kernel created from an advertisement " +
			"(RTF_ADDRCONF), the link's forwarding is 1 and its accept_ra is not 2. Routes of systemd-networkd " +
			"and NetworkManager are ignored: these programs process advertisements themselves.",
		Remedy:   "run `sysctl -w net.ipv6.conf.LINK.accept_ra=2` and add the sysctl to the policy",
		TradeOff: "The node accepts advertisements from every router on the link. RA guard on the switch protects against rogue ones.",
		Ref:      "https://github.com/cilium/cilium/issues/21819",
		Inspect:  inspectAcceptRA,
	}
}

func inspectAcceptRA(_ context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("router advertisements accepted for the default route")
	text, err := h.Text("/proc/net/ipv6_route")
	if errors.Is(err, fs.ErrNotExist) {
		s.Skip = "this kernel does not support IPv6"
		return s, nil
	}
	if err != nil {
		return s, err
	}
	var wrong, commands []string
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		const defaultRoute, addrconf = "00000000000000000000000000000000", 0x40000
		if len(f) < 10 || f[0] != defaultRoute || f[1] != "00" || f[9] == "lo" {
			continue
		}
		flags, err := strconv.ParseUint(f[8], 16, 32)
		if err != nil || flags&addrconf == 0 || slices.Contains(wrong, f[9]) {
			continue
		}
		forwarding, err := h.ReadSysctl("net/ipv6/conf/" + f[9] + "/forwarding")
		accept := ""
		if err == nil {
			accept, err = h.ReadSysctl("net/ipv6/conf/" + f[9] + "/accept_ra")
		}
		if errors.Is(err, fs.ErrNotExist) {
			continue // the link was removed, and its route with it
		}
		if err != nil {
			return s, err
		}
		s.Evidence = append(s.Evidence, checks.Seen("/proc/sys/net/ipv6/conf/"+f[9], "forwarding "+forwarding+", accept_ra "+accept))
		if forwarding != "0" && accept != "2" {
			wrong = append(wrong, f[9])
			commands = append(commands, policy.Key("net/ipv6/conf/"+f[9]+"/accept_ra").String()+"=2")
		}
	}
	if wrong != nil {
		s.Differs("the default route of "+strings.Join(wrong, ", ")+" will expire",
			"run `sysctl -w "+strings.Join(commands, " ")+"` and add the sysctl to the policy")
	}
	return s, nil
}
