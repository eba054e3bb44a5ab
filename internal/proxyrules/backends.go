package proxyrules

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"nodegate/internal/ruleset"
)

// backends notes, by address family, who writes into which backend.
type backends struct {
	services []inBackend    // chains of Services
	kubelet  []inBackend    // the hint that kubelet leaves in mangle for others
	leftover map[string]int // chains of iptables mode in an nft listing
}

type inBackend struct{ family, name string }

func (b *backends) add(set *ruleset.Set) {
	for _, s := range set.Saves {
		in := inBackend{s.Family, s.Backend}
		if hasServices(s) && !isIPVS(s) {
			b.services = append(b.services, in)
		}
		if mangle := s.Table("mangle"); mangle.Declares("KUBE-IPTABLES-HINT") || mangle.Declares("KUBE-KUBELET-CANARY") {
			b.kubelet = append(b.kubelet, in)
		}
	}
	for _, t := range set.NFT {
		b.services = append(b.services, inBackend{t.Family, "nftables"})
	}
	for family, n := range set.ServiceChains {
		if b.leftover == nil {
			b.leftover = map[string]int{}
		}
		b.leftover[family] += n
	}
}

func (b *backends) judge(out *Collector) {
	for _, family := range []string{ruleset.IPv4, ruleset.IPv6} {
		b.judgeMixed(family, out)
	}
	for _, family := range []string{ruleset.IPv4, ruleset.IPv6} {
		b.judgeKubelet(family, out)
	}
}

// judgeMixed reports Service chains in several backends of one family (kubernetes#109811). Two saves of one backend are one reading
// too many and no finding; of saves without a header that is not known.
func (b *backends) judgeMixed(family string, out *Collector) {
	var seen []string
	for _, in := range b.services {
		switch {
		case in.family != family:
		case in.name == "":
			seen = append(seen, "a save without a header")
		case !slices.Contains(seen, in.name):
			seen = append(seen, in.name)
		}
	}
	if n := b.leftover[family]; n > 0 && slices.Contains(seen, "nftables") {
		seen = append(seen, fmt.Sprintf("iptables-nft (%d Service chains)", n))
	}
	if len(seen) < 2 {
		return
	}
	count, all := "two", "both"
	if len(seen) > 2 {
		count, all = strconv.Itoa(len(seen)), "all"
	}
	out.Add(Finding{Name: "kubeproxy.backend.mixed", Family: family,
		Message: fmt.Sprintf("Service chains in %s backends: %s; the packet sees %s", count, strings.Join(seen, " and "), all)})
}

// judgeKubelet compares the backend of kubelet with that of kube-proxy, where both are known and each uses one.
func (b *backends) judgeKubelet(family string, out *Collector) {
	one := func(list []inBackend) string {
		name := ""
		for _, in := range list {
			switch {
			case in.family != family || in.name == "" || in.name == "nftables" || in.name == name:
			case name != "":
				return ""
			default:
				name = in.name
			}
		}
		return name
	}
	proxy, kubelet := one(b.services), one(b.kubelet)
	if proxy != "" && kubelet != "" && proxy != kubelet {
		out.Add(Finding{Name: "kubeproxy.backend.kubelet", Family: family, Table: "mangle",
			Message: fmt.Sprintf("kube-proxy writes its rules by iptables-%s; kubelet's hint is only in the other backend", proxy)})
	}
}
