package replica

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/netns"
	"nodegate/internal/host/program"
)

// Words returns a rule as its program prints it, or the line of `ip rule` or `ip route`; "" if no program prints it. It reads the node, not
// the replica.
func (p *Part) Words(ctx context.Context) string {
	is6 := p.Family == unix.AF_INET6 // in nf_tables too
	switch p.Kind {
	case PartPolicy:
		out, _ := program.Run(ctx, "nft", "list", "chain", p.FamilyName(), p.Table, p.Chain)
		if but := regexp.MustCompile(`saddr.*(@\S+).* accept`).FindSubmatch(out); but != nil && !p.Legacy {
			return fmt.Sprintf(":%s DROP but %s", p.Chain, but[1])
		}
		return fmt.Sprintf(":%s DROP", p.Chain)
	case PartRoutingRule:
		return line(ctx, fmt.Sprintf("%d:\t", p.Priority), "ip", family6(is6), "rule")
	case PartNextHop:
		return line(ctx, p.To+" ", "ip", family6(is6), "neigh", "show", "dev", p.Table)
	case PartRoute:
		to := p.To
		if one, err := netip.ParsePrefix(to); err == nil && one.IsSingleIP() {
			to = one.Addr().String()
		}
		for _, kind := range []string{"", "unreachable ", "blackhole ", "prohibit ", "local "} {
			if said := line(ctx, kind+to+" ", "ip", family6(is6), "route", "show", "table", p.Table); said != "" {
				return said
			}
		}
		return ""
	}
	if p.Legacy || p.Table != kubeProxy && (p.Family == unix.NFPROTO_IPV4 || is6) {
		name := map[bool]string{false: "iptables", true: "ip6tables"}[is6] + map[bool]string{false: "-nft", true: "-legacy"}[p.Legacy]
		out, err := program.Run(ctx, name+"-save", "-t", p.Table)
		n := 0
		for said := range strings.Lines(string(out)) {
			if strings.HasPrefix(said, "-A "+p.Chain+" ") {
				if n++; n == p.Position && err == nil {
					return strings.TrimSpace(said)
				}
			}
		}
	}
	if p.Legacy {
		return ""
	}
	out, err := program.Run(ctx, "nft", "-a", "list", "chain", p.FamilyName(), p.Table, p.Chain)
	for said := range strings.Lines(string(out)) {
		if rule, is := strings.CutSuffix(strings.TrimSpace(said), fmt.Sprintf(" # handle %d", p.Handle)); is && err == nil {
			return rule
		}
	}
	return ""
}

func family6(is6 bool) string { return map[bool]string{false: "-4", true: "-6"}[is6] }

// line returns the first line with a prefix that a program prints.
func line(ctx context.Context, prefix, name string, args ...string) string {
	out, err := program.Run(ctx, name, args...)
	for said := range strings.Lines(string(out)) {
		if strings.HasPrefix(said, prefix) && err == nil {
			return strings.Join(strings.Fields(said), " ")
		}
	}
	return ""
}

// FamilyName returns the family of a table as nft prints it.
func (p *Part) FamilyName() string {
	return netns.FamilyName(p.Family)
}
