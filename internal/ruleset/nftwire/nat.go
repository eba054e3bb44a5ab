package nftwire

import (
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"nodegate/internal/ruleset"
)

// readNAT reads dnat to one address and port, or to a random entry of a map.
func (r *rule) readNAT(b []byte) error {
	const low, high = unix.NFTA_NAT_REG_ADDR_MIN, unix.NFTA_NAT_REG_ADDR_MAX
	a, err := readAttributes(b, maskOf(unix.NFTA_NAT_TYPE, unix.NFTA_NAT_FAMILY),
		maskOf(low, high, unix.NFTA_NAT_REG_PROTO_MIN, unix.NFTA_NAT_REG_PROTO_MAX, unix.NFTA_NAT_FLAGS))
	if err != nil {
		return err
	}
	same := func(x, y int) bool { return a[y] == nil || slices.Equal(a[x], a[y]) }
	address := map[string]kind{ruleset.IPv4: ipv4, ruleset.IPv6: ipv6}[r.family]
	if a.number(unix.NFTA_NAT_TYPE) != unix.NFT_NAT_DNAT {
		r.addWords("snat")
		if to, err := r.getRegister(a.number(low)); err == nil && to.value != nil && same(low, high) {
			if ip, err := address.text(to.value); err == nil {
				r.addWords("to", ip)
			}
		}
		return nil
	}
	to, err := r.getRegister(a.number(low))
	if err != nil {
		return err
	}
	if !same(low, high) || !same(unix.NFTA_NAT_REG_PROTO_MIN, unix.NFTA_NAT_REG_PROTO_MAX) {
		return errForm
	}
	if to.mapped != nil {
		return r.readNATMap(to, address, &a)
	}
	if to.value == nil {
		return errForm
	}
	ip, err := address.text(to.value)
	if err != nil {
		return err
	}
	port := ""
	if a[unix.NFTA_NAT_REG_PROTO_MIN] != nil {
		t, err := r.getRegister(a.number(unix.NFTA_NAT_REG_PROTO_MIN))
		if err != nil {
			return err
		}
		if t.value == nil {
			return errForm
		}
		if port, err = service.text(t.value); err != nil {
			return err
		}
	}
	r.addWords("dnat to", net.JoinHostPort(ip, port))
	return nil
}

// readNATMap reads dnat to an address and port from a map.
func (r *rule) readNATMap(to *term, address kind, a *attributes) error {
	from, err := slot(a.number(unix.NFTA_NAT_REG_ADDR_MIN))
	if err != nil {
		return err
	}
	port, err := slot(a.number(unix.NFTA_NAT_REG_PROTO_MIN))
	if err != nil {
		return err
	}
	if len(to.mapped.data) != 2 || to.mapped.data[0] != address || port != from+slots(address.size()) {
		return errForm
	}
	list, _, err := r.setMembers(to.mapped, to)
	if err != nil {
		return err
	}
	r.addWords("dnat to " + to.words + " map " + list)
	return nil
}

func (r *rule) readMasquerade(b []byte) error {
	a, err := readAttributes(b, 0, maskOf(unix.NFTA_MASQ_FLAGS))
	if err != nil {
		return err
	}
	words := []string{"masquerade"}
	var flags []string
	for _, f := range []struct {
		bit  uint64 // include/uapi/linux/netfilter/nf_nat.h
		name string
	}{{1 << 2, "random"}, {1 << 4, "fully-random"}, {1 << 3, "persistent"}} {
		if a.number(unix.NFTA_MASQ_FLAGS)&f.bit != 0 {
			flags = append(flags, f.name)
		}
	}
	if flags != nil {
		words = append(words, strings.Join(flags, ", "))
	}
	r.addWords(strings.Join(words, " "))
	return nil
}

// readMarkWrite reads the value that meta writes.
func (r *rule) readMarkWrite(register uint64) error {
	t, err := r.getRegister(register)
	if err != nil {
		return err
	}
	const key = "meta mark"
	value := ""
	switch {
	case t.value != nil:
		value, err = mark.text(t.value)
	case t.words != key || !t.masked:
		err = errForm
	default:
		mask, xor := binary.NativeEndian.Uint32(t.mask), binary.NativeEndian.Uint32(t.xor)
		switch {
		case xor == 0:
			value = fmt.Sprint(key, " & ", mask)
		case mask == ^uint32(0):
			value = fmt.Sprint(key, " ^ ", xor)
		case mask == ^xor:
			value = fmt.Sprint(key, " | ", xor)
		default:
			err = errForm
		}
	}
	if err != nil {
		return err
	}
	r.addWords(key, "set", value)
	return nil
}
