package policy

import "strings"

// offloadGroup returns the kernel features behind one of ethtool(8)'s group names,
// long or short (ethtool.c, off_flag_def).
func offloadGroup(name string) []string {
	switch name {
	case "rx", "rx-checksumming":
		return []string{"rx-checksum"}
	case "tx", "tx-checksumming":
		return []string{"tx-checksum-ipv4", "tx-checksum-ip-generic", "tx-checksum-ipv6", "tx-checksum-fcoe-crc", "tx-checksum-sctp"}
	case "sg", "scatter-gather":
		return []string{"tx-scatter-gather", "tx-scatter-gather-fraglist"}
	case "tso", "tcp-segmentation-offload":
		return []string{"tx-tcp-segmentation", "tx-tcp-ecn-segmentation", "tx-tcp-mangleid-segmentation", "tx-tcp6-segmentation"}
	case "ufo", "udp-fragmentation-offload":
		return []string{"tx-udp-fragmentation"}
	case "gso", "generic-segmentation-offload":
		return []string{"tx-generic-segmentation"}
	case "gro", "generic-receive-offload":
		return []string{"rx-gro"}
	case "lro", "large-receive-offload":
		return []string{"rx-lro"}
	case "rxvlan", "rx-vlan-offload":
		return []string{"rx-vlan-hw-parse"}
	case "txvlan", "tx-vlan-offload":
		return []string{"tx-vlan-hw-insert"}
	case "ntuple", "ntuple-filters":
		return []string{"rx-ntuple-filter"}
	case "rxhash", "receive-hashing":
		return []string{"rx-hashing"}
	}
	return nil
}

// offloadNames returns the kernel's names for an offload in a policy, or nil if the name is
// unknown.
func offloadNames(name string) (features []string, group bool) {
	if g := offloadGroup(name); g != nil {
		return g, true
	}
	for k := range strings.FieldsSeq(kernelFeatures) {
		if k == name {
			return []string{k}, false
		}
	}
	return nil, false
}

// knownOffloads returns every name that a policy may use.
func knownOffloads() []string {
	return append(strings.Fields(kernelFeatures), strings.Fields(`rx rx-checksumming tx tx-checksumming sg
		scatter-gather tso tcp-segmentation-offload ufo udp-fragmentation-offload gso generic-segmentation-offload
		gro generic-receive-offload lro large-receive-offload rxvlan rx-vlan-offload txvlan tx-vlan-offload
		ntuple ntuple-filters rxhash receive-hashing`)...)
}

// kernelFeatures lists the names in net/ethtool/common.c (netdev_features_strings) of all kernels
// from 4.14 to 6.18. Each kernel knows only some of them.
const kernelFeatures = `
tx-scatter-gather tx-checksum-ipv4 tx-checksum-ip-generic tx-checksum-ipv6 tx-checksum-fcoe-crc tx-checksum-sctp
highdma tx-scatter-gather-fraglist tx-vlan-hw-insert rx-vlan-hw-parse rx-vlan-filter tx-vlan-stag-hw-insert
rx-vlan-stag-hw-parse rx-vlan-stag-filter vlan-challenged tx-generic-segmentation tx-lockless netns-local rx-gro
rx-gro-hw rx-gro-list rx-udp-gro-forwarding rx-lro tx-tcp-segmentation tx-tcp-ecn-segmentation
tx-tcp-mangleid-segmentation tx-tcp6-segmentation tx-tcp-accecn-segmentation tx-gso-robust tx-gso-partial tx-gso-list
tx-fcoe-segmentation tx-gre-segmentation tx-gre-csum-segmentation tx-ipxip4-segmentation tx-ipxip6-segmentation
tx-udp_tnl-segmentation tx-udp_tnl-csum-segmentation tx-tunnel-remcsum-segmentation tx-sctp-segmentation
tx-esp-segmentation tx-udp-segmentation tx-udp-fragmentation fcoe-mtu rx-ntuple-filter rx-hashing rx-checksum
tx-nocache-copy loopback rx-fcs rx-all l2-fwd-offload hw-tc-offload esp-hw-offload esp-tx-csum-hw-offload
rx-udp_tunnel-port-offload tls-hw-record tls-hw-tx-offload tls-hw-rx-offload macsec-hw-offload
hsr-tag-ins-offload hsr-tag-rm-offload hsr-fwd-offload hsr-dup-offload`
