package links

import (
	"context"
	"errors"
	"io/fs"
	"net/netip"
	"regexp"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// cniIPv6: a CNI plugin fails to give an IPv6 address to a link on a node whose links lack IPv6.
func cniIPv6() checks.Problem {
	return checks.Problem{
		Name: "cni.ipv6-disabled", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Warn, Later: true, AtBoot: true,
		Detects: "The CNI's configuration has an IPv6 range, and IPv6 is off on this node.",
		Symptom: "No Pod starts: the runtime reports \"failed to add IP addr ... permission denied\" for its sandbox.",
		How: "A file in /etc/cni/net.d has an IPv6 prefix, and net.ipv6.conf.all.disable_ipv6 is 1 or the kernel was booted with " +
			"ipv6.disable=1. Where default.disable_ipv6 alone is 1, the CNI's plugins enable IPv6 on their own links.",
		Remedy:   "run `sysctl -w net.ipv6.conf.all.disable_ipv6=0` and remove the file that sets it, or give the CNI no IPv6 range",
		TradeOff: "The node's links get IPv6 addresses from router advertisements, unless accept_ra is 0.",
		Ref:      "https://github.com/cri-o/cri-o/issues/3555",
		Inspect:  inspectCNIIPv6,
	}
}

func inspectCNIIPv6(_ context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("IPv6 for the CNI's range")
	text, err := h.CNIConfig()
	if err != nil {
		return s, err
	}
	wanted := ""
	for _, word := range regexp.MustCompile(`[0-9a-fA-F:]*:[0-9a-fA-F:.]*/\d+`).FindAllString(text, -1) {
		if p, err := netip.ParsePrefix(word); err == nil && p.Addr().Is6() {
			wanted = word
			break
		}
	}
	if wanted == "" {
		s.Skip = "the CNI's configuration has no IPv6 range"
		return s, nil
	}
	const parameter = "net/ipv6/conf/all/disable_ipv6"
	off, err := h.ReadSysctl(parameter)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		off = "no such parameter"
	case err != nil:
		return s, err
	case strings.TrimSpace(off) == "0":
		return s, nil
	}
	s.Evidence = []checks.Evidence{checks.Seen("/etc/cni/net.d", wanted), checks.Seen("/proc/sys/"+parameter, off)}
	s.Differs("IPv6 is off", "")
	return s, nil
}
