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
			if save.Family != family {
				continue
			}
			for _, t := range save.Tables {
				for _, c := range t.Chains {
					for i := 0; i < min(len(c.Rules), 3); i++ { // the first rules of a Service's chain
						if r := &c.Rules[i]; r.Target == "KUBE-MARK-MASQ" && r.Has(ruleset.BySource|ruleset.NotSource) {
							if p, err := netip.ParsePrefix(r.Source); err == nil && !p.IsSingleIP() {
								return p
							}
						}
					}
				}
			}
		}
		for _, t := range set.NFT {
			for _, c := range t.Chains {
				for _, r := range c.Rules {
					if p, err := netip.ParsePrefix(r.Source); err == nil && t.Family == family && r.NotSource && r.Target == "mark-for-masquerade" {
						return p
					}
				}
			}
		}
	}
	return netip.Prefix{}
}
