package replica

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// addRule adds a rule of nf_tables as a part.
func (c *Capture) addRule(chain chainID, rule []byte, position int) int {
	p := Part{Kind: PartRule, Family: chain.family, Table: chain.table, Chain: chain.name, Position: position, Message: rule,
		Own: isOwn(chain.table, chain.name)}
	if handle := attributes(rule, unix.NFTA_RULE_HANDLE)[unix.NFTA_RULE_HANDLE]; len(handle) == 8 {
		p.Handle = binary.BigEndian.Uint64(handle)
	}
	for target := range jumps(rule) {
		p.Own, p.Target = p.Own || isOwn(chain.table, target), target
	}
	c.Parts = append(c.Parts, p)
	return len(c.Parts) - 1
}

// addPolicy adds the policy of a base chain as a part if it drops packets.
func (c *Capture) addPolicy(chain *nftChain) int {
	policy := attributes(chain.message, unix.NFTA_CHAIN_POLICY)[unix.NFTA_CHAIN_POLICY]
	if len(policy) != 4 || binary.BigEndian.Uint32(policy) != 0 {
		return -1
	}
	hook := attributes(attributes(chain.message, unix.NFTA_CHAIN_HOOK)[unix.NFTA_CHAIN_HOOK], unix.NFTA_HOOK_HOOKNUM)
	c.Parts = append(c.Parts, Part{Kind: PartPolicy, Family: chain.id.family, Table: chain.id.table, Chain: chain.id.name,
		Forwards: uint32Of(hook[unix.NFTA_HOOK_HOOKNUM]) == unix.NF_INET_FORWARD})
	return len(c.Parts) - 1
}

// Masquerades reports whether the network of Pods hides their addresses of a family from other networks: a CNI that does has a chain for
// it, even if another program has emptied it.
func (c *Capture) Masquerades(is6 bool) bool {
	family := map[bool]byte{false: unix.NFPROTO_IPV4, true: unix.NFPROTO_IPV6}[is6]
	isNamed := func(in []byte) bool {
		return slices.ContainsFunc([]string{"FLANNEL-POSTRTG\x00", "IP-MASQ-AGENT\x00", "KIND-MASQ-AGENT\x00"}, func(chain string) bool {
			return bytes.Contains(in, []byte(chain))
		})
	}
	return slices.ContainsFunc(c.NFT, func(u Unit) bool {
		return slices.ContainsFunc(u.Messages, func(m Message) bool {
			return m.Kind == unix.NFT_MSG_NEWCHAIN && m.Family == family && isNamed(m.Payload)
		})
	}) || slices.ContainsFunc(c.Legacy, func(l Legacy) bool { return l.IPv6 == is6 && isNamed(l.Blob) })
}

// HasForeign reports whether other programs than kube-proxy and kubelet have rules, sets or routing rules, whether there are routes of
// other tables than main or routes that refuse packets, or links without hardware addresses, which may lead to another network, or whether
// IPv4 is not forwarded. Most nodes do not forward IPv6.
func (c *Capture) HasForeign() bool {
	return len(c.Sets) > 0 || c.Masquerades(false) || c.Masquerades(true) ||
		slices.ContainsFunc(c.Links, func(l Link) bool { return l.NoARP && l.Up && l.Name != "lo" }) ||
		slices.ContainsFunc(c.Parts, func(p Part) bool {
			return !p.Own && (p.Kind != PartSysctl || p.Family == unix.AF_INET && strings.Contains(p.Table, "forward")) &&
				(p.Kind != PartRoute || p.Table != "254" || p.Message[7] != unix.RTN_UNICAST)
		})
}

// HasVeth reports whether the kernel can create the stand-ins without loading a module.
func (c *Capture) HasVeth() bool {
	return isLoaded("veth") || slices.ContainsFunc(c.Links, func(l Link) bool { return l.Kind == "veth" })
}

// Ambiguous reports whether both backends of iptables translate addresses: the one that was there last does it, and nothing shows which
// one that is. In the copy it is the legacy backend's after Build, and nf_tables' after Load.
func (c *Capture) Ambiguous() bool {
	nat := func(legacy bool) bool {
		return slices.ContainsFunc(c.Parts, func(p Part) bool {
			return p.Kind == PartRule && p.Legacy == legacy && (p.Table == "nat" || p.Table == kubeProxy)
		})
	}
	return nat(true) && nat(false)
}
