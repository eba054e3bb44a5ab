package path

import (
	"net/netip"

	"nodegate/internal/ruleset"
)

// NotOfReplies reports whether replies to Pods certainly do not come in or leave by a link:
// Node.Elsewhere. They come in by an uplink, and leave by a link of Pods.
func NotOfReplies(pattern string, in bool) bool {
	return isOfContainers(pattern) || in && isOfPods(pattern)
}

// PodRange returns the addresses whose packets kube-proxy does not masquerade, or the zero prefix.
func PodRange(sets []*ruleset.Set, family string) netip.Prefix {
	for _, set := range sets {
		for _, save := range set.Saves {
			for _, t := range save.Tables {
				if p := podRangeOf(t); p.IsValid() && save.Family == family {
					return p
				}
			}
		}
		for _, t := range set.NFT {
			if p := podRangeOfNFT(t); p.IsValid() && t.Family == family {
				return p
			}
		}
	}
	return netip.Prefix{}
}

// podRangeOf returns the range that a chain of a Service in iptables mode leaves out.
func podRangeOf(t *ruleset.Table) netip.Prefix {
	for _, c := range t.Chains {
		for i := range c.Rules[:min(len(c.Rules), 3)] { // it is one of the first rules
			r := &c.Rules[i]
			if r.Target != "KUBE-MARK-MASQ" || !r.Has(ruleset.BySource|ruleset.NotSource) {
				continue
			}
			if p, err := netip.ParsePrefix(r.Source); err == nil && !p.IsSingleIP() {
				return p
			}
		}
	}
	return netip.Prefix{}
}

// podRangeOfNFT returns the same in nftables mode.
func podRangeOfNFT(t *ruleset.NFTTable) netip.Prefix {
	for _, c := range t.Chains {
		for _, r := range c.Rules {
			if p, err := netip.ParsePrefix(r.Source); err == nil && r.NotSource && r.Target == "mark-for-masquerade" {
				return p
			}
		}
	}
	return netip.Prefix{}
}
