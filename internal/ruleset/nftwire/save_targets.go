package nftwire

import (
	"encoding/binary"
	"strconv"
	"strings"

	"nodegate/internal/ruleset"
)

// targetReader returns the size of a target's struct and a function that reads it.
func (r *saveRule) targetReader(name string) (size int, read func(info) error) {
	kind, _, _ := strings.Cut(name, ".")
	option := map[string]string{"DNAT": " --to-destination ", "SNAT": " --to-source ", "MASQUERADE": " --to-ports "}[kind]
	four := r.addressSize() == 4
	switch {
	case name == "MARK.2": // xt_mark.h
		return 8, func(b info) error {
			return r.setPart(target, " -j MARK --set-xmark ", hex(b.u32(0)), "/", hex(b.u32(4)))
		}
	case name == "REJECT.0": // netfilter_ipv4/ipt_REJECT.h, netfilter_ipv6/ip6t_REJECT.h
		return 4, r.readReject
	case name == "DNAT.2": // nf_nat.h, nf_nat_range2
		return 42, func(b info) error { return r.readNAT(kind, option, b[:40], 16) }
	case four && option != "" && name == kind+".0": // nf_nat_ipv4_multi_range_compat, a list of ranges
		return 20, func(b info) error {
			if b.u32(0) != 1 {
				return errForm
			}
			return r.readNAT(kind, option, b[4:], 4)
		}
	case !four && (name == "DNAT.1" || name == "SNAT.1" || name == "MASQUERADE.0"): // nf_nat_range
		return 40, func(b info) error { return r.readNAT(kind, option, b, 16) }
	}
	return 0, nil
}

func (r *saveRule) readReject(b info) error {
	names := []string{"icmp-net-unreachable", "icmp-host-unreachable", "icmp-proto-unreachable", "icmp-port-unreachable", "",
		"icmp-net-prohibited", "icmp-host-prohibited", "tcp-reset", "icmp-admin-prohibited"}
	if r.addressSize() == 16 {
		names = []string{"icmp6-no-route", "icmp6-adm-prohibited", "", "icmp6-addr-unreachable", "icmp6-port-unreachable", "", "tcp-reset"}
	}
	if with := b.u32(0); with < uint32(len(names)) && names[with] != "" {
		return r.setPart(target, " -j REJECT --reject-with ", names[with])
	}
	return errForm
}

// readNAT reads a range of addresses and a range of ports. room is the size of the address field in
// bytes.
func (r *saveRule) readNAT(name, option string, b info, room int) error {
	const byAddress, byPort = 1, 2 // NF_NAT_RANGE_MAP_IPS, NF_NAT_RANGE_PROTO_SPECIFIED
	flags, to := b.u32(0), ""
	if flags&byAddress != 0 {
		low, high := ip(b[4:4+r.addressSize()]), ip(b[4+room:4+room+r.addressSize()])
		if to = low; low != high {
			to += "-" + high
		}
		if r.addressSize() == 16 && flags&byPort != 0 {
			to = "[" + to + "]"
		}
	}
	if flags&byPort != 0 {
		if name != "MASQUERADE" {
			to += ":"
		}
		first, last := binary.BigEndian.Uint16(b[4+2*room:]), binary.BigEndian.Uint16(b[6+2*room:])
		if to += strconv.Itoa(int(first)); first != last {
			to += "-" + strconv.Itoa(int(last))
		}
	}
	if to != "" {
		to = option + to
	}
	for _, f := range []flag{{4, " --random"}, {16, " --random-fully"}, {8, " --persistent"}} {
		if flags&f.bit != 0 {
			to += f.text
		}
	}
	if flags&^31 != 0 {
		return errForm
	}
	return r.setPart(target, " -j ", name, to)
}

// addressSize returns the size of an address in bytes.
func (r *saveRule) addressSize() int {
	if r.family == ruleset.IPv6 {
		return 16
	}
	return 4
}
