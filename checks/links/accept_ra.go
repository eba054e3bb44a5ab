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

// acceptRA: a machine that forwards ignores router advertisements, and its default route of IPv6 runs out.
func acceptRA() checks.Problem {
	return checks.Problem{
		Name: "accept-ra.forwarding", Stages: []checks.Stage{checks.Run}, Severity: policy.Warn,
		Detects: "The IPv6 default route comes from a router advertisement, and the link that has it takes no more of them because it forwards.",
		Symptom: "Some 30 minutes after forwarding was switched on, IPv6 off the node ends; a restart of the network brings it back for as long.",
		How: "/proc/net/ipv6_route has a default route that the kernel made of an advertisement (RTF_ADDRCONF), the link's forwarding is 1 and " +
			"its accept_ra is not 2. Routes of systemd-networkd and NetworkManager do not count: they take advertisements themselves.",
		Remedy:   "run: sysctl -w net.ipv6.conf.LINK.accept_ra=2; and put it into the policy",
		TradeOff: "A router that somebody else puts up is believed; RA guard on the switch is the answer to that.",
		Ref:      "https://github.com/cilium/cilium/issues/21819",
		Inspect:  inspectAcceptRA,
	}
}

func inspectAcceptRA(_ context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("advertisements taken where the route needs them")
	text, err := h.Text("/proc/net/ipv6_route")
	if errors.Is(err, fs.ErrNotExist) {
		s.Skip = "this kernel has no IPv6"
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
			continue // the link has gone since, and the route with it
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
		s.Differs("the default route of "+strings.Join(wrong, ", ")+" will run out", "run: sysctl -w "+strings.Join(commands, " ")+
			"; and put it into the policy")
	}
	return s, nil
}
