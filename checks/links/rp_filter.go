package links

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// rpFilter detects a reverse path filter that drops Pods' packets. An interface's own value is misleading: the kernel uses
// the higher of it and the value for all interfaces.
func rpFilter() checks.Problem {
	return checks.Problem{
		Name: "rp-filter.effective", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Warn,
		Detects: "The effective reverse path filter, the higher of `all` and the interface's own value, drops packets of Pods.",
		Symptom: "Pods reach some destinations but not others, and no firewall counts a drop (IPReversePathFilter in `nstat` does).",
		How: "For every interface, the effective value is max(conf.all.rp_filter, conf.NAME.rp_filter). Cilium's lxc* and cilium_* need 0. " +
			"Tunnels and, with the AWS VPC CNI, the interface of the default route must not be strict (1).",
		Remedy: "set net.ipv4.conf.all.rp_filter and the interface's own value in the policy: 0 for Cilium, 2 " +
			"for tunnels and ENIs; systemd 245 and later also sets *.rp_filter=2",
		TradeOff: "Without rp_filter, a host accepts packets with forged source addresses from that interface; the CNI's own policy must " +
			"reject them. Calico sets 1 on its cali* interfaces on purpose, so this check ignores them.",
		Ref:     "https://github.com/cilium/cilium/issues/10645",
		Inspect: inspectRPFilter,
	}
}

func inspectRPFilter(ctx context.Context, h *host.Host, p *policy.Policy) (checks.State, error) {
	s := checks.State{Want: "0 on lxc* and cilium_*, not 1 on tunnels and ENIs", Pass: true}
	links, err := h.Links.List(ctx)
	if err != nil {
		return s, err
	}
	all, err := readRPFilter(h, "all")
	if err != nil {
		return s, err
	}
	s.Evidence = []checks.Evidence{checks.Seen("/proc/sys/net/ipv4/conf/all/rp_filter", strconv.FormatUint(all, 10))}
	var uplinks []string
	if names, err := h.ReadDirIfAny("/etc/cni/net.d"); err != nil {
		return s, err
	} else if slices.Contains(names, "10-aws.conflist") {
		if uplinks, err = h.Links.DefaultRoutes(ctx); err != nil {
			return s, err
		}
	}
	var inspected []cniInterface
	var wrong []string
	var causes checks.Causes
	for _, l := range links {
		need := rpFilterNeed(l, uplinks)
		if need == "" {
			continue
		}
		own, err := readRPFilter(h, l.Name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed since it was listed
		}
		if err != nil {
			return s, err
		}
		f := cniInterface{l.Name, need, own}
		inspected = append(inspected, f)
		if f.isSatisfied(all) {
			continue
		}
		wrong = append(wrong, fmt.Sprintf("%s=%d", l.Name, max(all, own)))
		// A node can have hundreds of Pods: ten are evidence enough.
		if len(wrong) <= 10 {
			s.Evidence = append(s.Evidence, checks.Seen("/proc/sys/net/ipv4/conf/"+l.Name+"/rp_filter",
				fmt.Sprintf("%d, effective %d, needs %s", own, max(all, own), need)))
		}
		cause := ""
		if f.isSatisfied(0) {
			cause = checks.SysctlCause(p, "net/ipv4/conf/all/rp_filter")
		}
		causes.Add(cause)
	}
	s.Cause = causes.One()
	switch {
	case inspected == nil:
		s.Skip = "no CNI interfaces yet"
	case wrong == nil:
		s.Got = s.Want
	default:
		s.Differs(strings.Join(wrong, " "), "run `sysctl -w "+strings.Join(rpFilterCommands(all, inspected), " ")+"` and add a link block "+
			"with that sysctl to the policy")
	}
	return s, nil
}

// isCiliumPodLink reports whether a link leads to a Pod of Cilium. lxcbr0 is LXC's own bridge.
func isCiliumPodLink(l host.Link) bool { return strings.HasPrefix(l.Name, "lxc") && l.Kind != "bridge" }

// cniInterface is an interface of a CNI, with its own rp_filter and the value it needs.
type cniInterface struct {
	name, need string
	own        uint64
}

func (f cniInterface) isSatisfied(all uint64) bool {
	effective := max(all, f.own)
	return effective == 0 || effective == 2 && f.need == "not 1"
}

// rpFilterCommands returns the assignments that correct the interfaces. It lowers `all` only if an interface needs 0;
// it then also corrects the interfaces that only `all` had made loose.
func rpFilterCommands(all uint64, inspected []cniInterface) []string {
	var commands []string
	if all > 0 && slices.ContainsFunc(inspected, func(f cniInterface) bool { return f.need == "0" }) {
		all, commands = 0, []string{"net.ipv4.conf.all.rp_filter=0"}
	}
	for _, f := range inspected {
		if f.isSatisfied(all) {
			continue
		}
		to := "=2"
		if f.need == "0" {
			to = "=0"
		}
		commands = append(commands, policy.Key("net/ipv4/conf/"+f.name+"/rp_filter").String()+to)
	}
	return commands[:min(len(commands), 10)]
}

// rpFilterNeed returns "0", "not 1", or "" for an interface that no CNI created.
func rpFilterNeed(l host.Link, uplinks []string) string {
	switch {
	case isCiliumPodLink(l), strings.HasPrefix(l.Name, "cilium_"):
		return "0"
	case l.Kind == "vxlan", l.Kind == "geneve", l.Kind == "ipip", l.Kind == "wireguard", slices.Contains(uplinks, l.Name):
		return "not 1"
	}
	return ""
}

func readRPFilter(h *host.Host, link string) (uint64, error) {
	return h.SysctlNumber("net/ipv4/conf/" + link + "/rp_filter")
}
