package nftwire

import (
	"encoding/binary"
	"strconv"
	"strings"

	"nodegate/internal/ruleset"
)

// targeted returns the size of a target's struct, and what reads it.
func (r *saveRule) targeted(name string) (size int, read func(info) error) {
	kind, _, _ := strings.Cut(name, ".")
	option := map[string]string{"DNAT": " --to-destination ", "SNAT": " --to-source ", "MASQUERADE": " --to-ports "}[kind]
	four := r.bytes() == 4
	switch {
	case name == "MARK.2": // xt_mark.h
		return 8, func(b info) error { return r.once(target, " -j MARK --set-xmark ", hex(b.u32(0)), "/", hex(b.u32(4))) }
	case name == "REJECT.0": // netfilter_ipv4/ipt_REJECT.h, netfilter_ipv6/ip6t_REJECT.h
		return 4, r.reject
	case name == "DNAT.2": // nf_nat.h, nf_nat_range2
		return 42, func(b info) error { return r.nat(kind, option, b[:40], 16) }
	case four && option != "" && name == kind+".0": // nf_nat_ipv4_multi_range_compat, which is a list
		return 20, func(b info) error {
			if b.u32(0) != 1 {
				return errForm
			}
			return r.nat(kind, option, b[4:], 4)
		}
	case !four && (name == "DNAT.1" || name == "SNAT.1" || name == "MASQUERADE.0"): // nf_nat_range
		return 40, func(b info) error { return r.nat(kind, option, b, 16) }
	}
	return 0, nil
}

func (r *saveRule) reject(b info) error {
	names := []string{"icmp-net-unreachable", "icmp-host-unreachable", "icmp-proto-unreachable", "icmp-port-unreachable", "",
		"icmp-net-prohibited", "icmp-host-prohibited", "tcp-reset", "icmp-admin-prohibited"}
	if r.bytes() == 16 {
		names = []string{"icmp6-no-route", "icmp6-adm-prohibited", "", "icmp6-addr-unreachable", "icmp6-port-unreachable", "", "tcp-reset"}
	}
	if with := b.u32(0); with < uint32(len(names)) && names[with] != "" {
		return r.once(target, " -j REJECT --reject-with ", names[with])
	}
	return errForm
}

// nat reads a range of addresses and of ports. An address has room for so many bytes.
func (r *saveRule) nat(name, option string, b info, room int) error {
	const byAddress, byPort = 1, 2 // NF_NAT_RANGE_MAP_IPS, NF_NAT_RANGE_PROTO_SPECIFIED
	flags, to := b.u32(0), ""
	if flags&byAddress != 0 {
		low, high := ip(b[4:4+r.bytes()]), ip(b[4+room:4+room+r.bytes()])
		if to = low; low != high {
			to += "-" + high
		}
		if r.bytes() == 16 && flags&byPort != 0 {
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
	return r.once(target, " -j ", name, to)
}

// bytes returns how many an address has.
func (r *saveRule) bytes() int {
	if r.family == ruleset.IPv6 {
		return 16
	}
	return 4
}
