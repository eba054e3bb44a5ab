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

// rpFilter: the reverse path filter that counts is not the one people look at.
func rpFilter() checks.Problem {
	return checks.Problem{
		Name: "rp-filter.effective", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Warn,
		Detects: "The reverse path filter in effect, the higher of `all` and the interface's own, drops packets of Pods.",
		Symptom: "Pods reach some destinations and not others; no firewall counts a drop (IPReversePathFilter in `nstat` does).",
		How: "For every interface max(conf.all.rp_filter, conf.NAME.rp_filter): Cilium's lxc* and cilium_* need 0; tunnels, CNI bridges and, " +
			"with the AWS VPC CNI, the interface of the default route must not be strict (1).",
		Remedy: "set net.ipv4.conf.all.rp_filter and the interface's own in the policy, 0 for Cilium, 2 for tunnels and ENIs; systemd 245 " +
			"and later also sets *.rp_filter=2",
		TradeOff: "A host without rp_filter accepts packets with forged source addresses from that interface; the CNI's own policy must " +
			"catch them. Calico sets 1 on its cali* interfaces on purpose: they are not looked at.",
		Ref:     "https://github.com/cilium/cilium/issues/10645",
		Inspect: inspectRPFilter,
	}
}

func inspectRPFilter(ctx context.Context, h *host.Host, p *policy.Policy) (checks.State, error) {
	s := checks.State{Want: "0 on lxc* and cilium_*, not 1 on tunnels, CNI bridges and ENIs", Pass: true}
	links, err := h.Links.List(ctx)
	if err != nil {
		return s, err
	}
	all, err := readRPFilter(h, "all")
	if err != nil {
		return s, err
	}
	s.Evidence = []checks.Evidence{checks.Seen("/proc/sys/net/ipv4/conf/all/rp_filter", strconv.Itoa(all))}
	var uplinks []string
	if names, err := h.ReadDirIfAny("/etc/cni/net.d"); err != nil {
		return s, err
	} else if slices.Contains(names, "10-aws.conflist") {
		if uplinks, err = h.Links.DefaultRoutes(ctx); err != nil {
			return s, err
		}
	}
	var looked []filtered
	var wrong []string
	var causes checks.Causes
	for _, l := range links {
		need := rpFilterNeed(l, uplinks)
		if need == "" {
			continue
		}
		own, err := readRPFilter(h, l.Name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has gone
		}
		if err != nil {
			return s, err
		}
		f := filtered{l.Name, need, own}
		looked = append(looked, f)
		if f.fits(all) {
			continue
		}
		wrong = append(wrong, fmt.Sprintf("%s=%d", l.Name, max(all, own)))
		// A node has hundreds of Pods: ten of them prove it.
		if len(wrong) <= 10 {
			s.Evidence = append(s.Evidence, checks.Seen("/proc/sys/net/ipv4/conf/"+l.Name+"/rp_filter",
				fmt.Sprintf("%d, effective %d, needs %s", own, max(all, own), need)))
		}
		cause := ""
		if f.fits(0) {
			cause = checks.SysctlCause(p, "net/ipv4/conf/all/rp_filter")
		}
		causes.Add(cause)
	}
	s.Cause = causes.One()
	switch {
	case looked == nil:
		s.Skip = "no interface of a CNI yet"
	case wrong == nil:
		s.Got = s.Want
	default:
		s.Differs(strings.Join(wrong, " "), "run: sysctl -w "+strings.Join(rpFilterCommands(all, looked), " ")+"; and put a link block with "+
			"that sysctl into the policy")
	}
	return s, nil
}

// podOfCilium reports whether a link leads to a Pod of Cilium. lxcbr0 is LXC's own bridge.
func podOfCilium(l host.Link) bool { return strings.HasPrefix(l.Name, "lxc") && l.Kind != "bridge" }

// filtered is an interface of a CNI, with its own rp_filter and the value it needs.
type filtered struct {
	name, need string
	own        int
}

func (f filtered) fits(all int) bool {
	effective := max(all, f.own)
	return effective == 0 || effective == 2 && f.need == "not 1"
}

// rpFilterCommands lowers `all` only where nothing else helps an interface. Then
// it checks again those that `all` had made loose.
func rpFilterCommands(all int, looked []filtered) []string {
	var commands []string
	if all > 0 && slices.ContainsFunc(looked, func(f filtered) bool { return f.need == "0" }) {
		all, commands = 0, []string{"net.ipv4.conf.all.rp_filter=0"}
	}
	for _, f := range looked {
		if f.fits(all) {
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

// rpFilterNeed returns "0", "not 1", or "" for an interface that no CNI made.
func rpFilterNeed(l host.Link, uplinks []string) string {
	switch {
	case podOfCilium(l), strings.HasPrefix(l.Name, "cilium_"):
		return "0"
	case l.Kind == "vxlan", l.Kind == "geneve", l.Kind == "ipip", l.Kind == "wireguard",
		strings.HasPrefix(l.Name, "cni") && l.Kind == "bridge":
		return "not 1"
	case slices.Contains(uplinks, l.Name):
		return "not 1"
	}
	return ""
}

func readRPFilter(h *host.Host, link string) (int, error) {
	text, err := h.ReadSysctl("net/ipv4/conf/" + link + "/rp_filter")
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("reading rp_filter of %s: %w", link, err)
	}
	return n, nil
}
