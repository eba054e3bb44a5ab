package policy

import (
	"slices"
	"strings"
)

// offloadGroups has ethtool(8)'s group names, short and long, and the kernel features behind them (ethtool.c, off_flag_def).
const offloadGroups = `
rx rx-checksumming: rx-checksum
tx tx-checksumming: tx-checksum-ipv4 tx-checksum-ip-generic tx-checksum-ipv6 tx-checksum-fcoe-crc tx-checksum-sctp
sg scatter-gather: tx-scatter-gather tx-scatter-gather-fraglist
tso tcp-segmentation-offload: tx-tcp-segmentation tx-tcp-ecn-segmentation tx-tcp-mangleid-segmentation tx-tcp6-segmentation
ufo udp-fragmentation-offload: tx-udp-fragmentation
gso generic-segmentation-offload: tx-generic-segmentation
gro generic-receive-offload: rx-gro
lro large-receive-offload: rx-lro
rxvlan rx-vlan-offload: rx-vlan-hw-parse
txvlan tx-vlan-offload: tx-vlan-hw-insert
ntuple ntuple-filters: rx-ntuple-filter
rxhash receive-hashing: rx-hashing`

// offloadNames returns the kernel's names for an offload in a policy, or nil if the name is unknown.
func offloadNames(name string) (features []string, group bool) {
	for line := range strings.Lines(offloadGroups) {
		if names, behind, _ := strings.Cut(line, ":"); slices.Contains(strings.Fields(names), name) {
			return strings.Fields(behind), true
		}
	}
	if slices.Contains(strings.Fields(kernelFeatures), name) {
		return []string{name}, false
	}
	return nil, false
}

// KnownOffloads returns every name that a policy may use.
func KnownOffloads() []string {
	all := strings.Fields(kernelFeatures)
	for line := range strings.Lines(offloadGroups) {
		names, _, _ := strings.Cut(line, ":")
		all = append(all, strings.Fields(names)...)
	}
	return all
}

// kernelFeatures lists the names in net/ethtool/common.c (netdev_features_strings) of all kernels from 4.14 to 6.18. Each kernel knows only
// some of them.
const kernelFeatures = `
tx-scatter-gather tx-checksum-ipv4 tx-checksum-ip-generic tx-checksum-ipv6 tx-checksum-fcoe-crc tx-checksum-sctp highdma
tx-scatter-gather-fraglist tx-vlan-hw-insert rx-vlan-hw-parse rx-vlan-filter tx-vlan-stag-hw-insert rx-vlan-stag-hw-parse
rx-vlan-stag-filter vlan-challenged tx-generic-segmentation tx-lockless netns-local rx-gro rx-gro-hw rx-gro-list rx-udp-gro-forwarding
rx-lro tx-tcp-segmentation tx-tcp-ecn-segmentation tx-tcp-mangleid-segmentation tx-tcp6-segmentation tx-tcp-accecn-segmentation
tx-gso-robust tx-gso-partial tx-gso-list tx-fcoe-segmentation tx-gre-segmentation tx-gre-csum-segmentation tx-ipxip4-segmentation
tx-ipxip6-segmentation tx-udp_tnl-segmentation tx-udp_tnl-csum-segmentation tx-tunnel-remcsum-segmentation tx-sctp-segmentation
tx-esp-segmentation tx-udp-segmentation tx-udp-fragmentation fcoe-mtu rx-ntuple-filter rx-hashing rx-checksum tx-nocache-copy loopback
rx-fcs rx-all l2-fwd-offload hw-tc-offload esp-hw-offload esp-tx-csum-hw-offload rx-udp_tunnel-port-offload tls-hw-record tls-hw-tx-offload
tls-hw-rx-offload macsec-hw-offload hsr-tag-ins-offload hsr-tag-rm-offload hsr-fwd-offload hsr-dup-offload`
