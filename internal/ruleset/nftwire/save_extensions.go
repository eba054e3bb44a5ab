package nftwire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// info is a struct of a match or a target, padded to eight bytes: include/uapi/linux/netfilter, in the file that is named where it is
// read. (github.com/google/nftables/xt has half of these; some of them it reads without saying that they are cut off.)
type info []byte

func (b info) u16(at int) uint16  { return binary.NativeEndian.Uint16(b[at:]) }
func (b info) u32(at int) uint32  { return binary.NativeEndian.Uint32(b[at:]) }
func (b info) port(at int) string { return strconv.Itoa(int(b.u16(at))) }
func (b info) text(at, size int) string {
	s, _, _ := bytes.Cut(b[at:at+size], []byte{0})
	return string(s)
}

// name returns a text that is one word.
func (b info) name(at, size int) (string, error) {
	s := b.text(at, size)
	if !plain(s) {
		return "", errText
	}
	return s, nil
}

// extension reads a match or a target that xtables does.
func (r *saveRule) extension(kind string, b []byte) error {
	a, err := only(b, set(unix.NFTA_MATCH_NAME, unix.NFTA_MATCH_REV, unix.NFTA_MATCH_INFO), 0) // NFTA_TARGET_* have the same numbers
	if err != nil {
		return err
	}
	name := string(a.text(unix.NFTA_MATCH_NAME)) + "." + strconv.FormatUint(a.number(unix.NFTA_MATCH_REV), 10)
	size, read := r.match(name)
	if kind == "target" {
		size, read = r.targeted(name)
	}
	switch b = a[unix.NFTA_MATCH_INFO]; {
	case read == nil:
		err = errors.New("not known")
	case len(b) < size || len(b) > (size+7)&^7:
		err = fmt.Errorf("%d bytes, not %d", len(b), size)
	default:
		err = read(b)
	}
	if err != nil {
		return fmt.Errorf("%.32s: %w", name, err)
	}
	return nil
}

// match returns the size of a match's struct, and what reads it.
func (r *saveRule) match(name string) (size int, read func(info) error) {
	switch name {
	case "comment.0": // xt_comment.h
		return 256, func(b info) error { return r.comment(b.text(0, 256)) }
	case "conntrack.2": // xt_conntrack.h
		return 156, r.conntrack
	case "conntrack.3":
		return 164, r.conntrack
	case "addrtype.1": // xt_addrtype.h
		return 8, r.addrtype
	case "statistic.0": // xt_statistic.h
		return 24, r.statistic
	case "recent.1": // xt_recent.h
		return 228, r.recent
	case "multiport.1": // xt_multiport.h
		return 48, r.multiport
	case "nfacct.0", "nfacct.1": // xt_nfacct.h
		return 40, func(b info) error {
			name, err := b.name(0, 32)
			r.add(" -m nfacct --nfacct-name  ", quoted(name)) // with two spaces
			return err
		}
	case "mark.1": // xt_mark.h
		return 9, func(b info) error { r.mark(b[8] != 0, b.u32(0), b.u32(4)); return nil }
	case "tcp.0": // xt_tcpudp.h
		return 12, func(b info) error {
			if b[8]|b[9]|b[11]&^3 != 0 {
				return errForm // an option, or flags
			}
			r.transport("tcp", b, b[4:], b[11])
			return nil
		}
	case "udp.0":
		return 10, func(b info) error { r.transport("udp", b, b[4:], b[8]); return nil }
	case "sctp.0": // xt_sctp.h
		return 292, func(b info) error {
			have, all := b.u32(284), info{0, 0, 255, 255}
			ports := [2]info{all, all}
			for i := range ports {
				if have&(1<<i) != 0 {
					ports[i] = b[4-4*i:]
				}
			}
			if have&^3 != 0 {
				return errForm // chunks
			}
			r.transport("sctp", ports[0], ports[1], b[288])
			return nil
		}
	}
	return 0, nil
}

// transport writes two ranges of ports. Bits of not are for the source's and the destination's.
func (r *saveRule) transport(name string, source, destination info, not byte) {
	r.add(" -m ", name)
	for i, ports := range []info{source, destination} {
		option, first, last := [...]string{" --sport ", " --dport "}[i], ports.port(0), ports.port(2)
		switch {
		case first == last:
			r.add(unless(not&(1<<i) != 0, option), first)
		case first != "0" || last != "65535" || not&(1<<i) != 0:
			r.add(unless(not&(1<<i) != 0, option), first, ":", last)
		}
	}
}

// flag is a bit, and what iptables-nft-save prints of it.
type flag struct {
	bit  uint32
	text string
}

// listed returns the texts of bits.
func listed(bits uint32, known ...flag) (string, error) {
	var list []string
	for _, f := range known {
		if bits&f.bit != 0 {
			list, bits = append(list, f.text), bits&^f.bit
		}
	}
	if bits != 0 || list == nil {
		return "", errForm
	}
	return strings.Join(list, ","), nil
}

func (r *saveRule) conntrack(b info) error {
	const state, alias = 1, 1 << 13 // XT_CONNTRACK_STATE, XT_CONNTRACK_STATE_ALIAS
	flags, not := b.u16(146), b.u16(148)
	states, err := listed(uint32(b.u16(150)), flag{1, "INVALID"}, flag{8, "NEW"}, flag{4, "RELATED"}, flag{2, "ESTABLISHED"},
		flag{256, "UNTRACKED"}, flag{64, "SNAT"}, flag{128, "DNAT"})
	switch {
	case err != nil || flags&^alias != state || not&^state != 0:
		return errForm // it matches more than the state
	case flags&alias != 0:
		r.add(" -m state", unless(not != 0, " --state "), states)
	default:
		r.add(" -m conntrack", unless(not != 0, " --ctstate "), states)
	}
	return nil
}

func (r *saveRule) addrtype(b info) error {
	var types []flag
	for i, name := range []string{"UNSPEC", "UNICAST", "LOCAL", "BROADCAST", "ANYCAST", "MULTICAST", "BLACKHOLE", "UNREACHABLE", "PROHIBIT",
		"THROW", "NAT", "XRESOLVE"} {
		types = append(types, flag{1 << i, name})
	}
	r.add(" -m addrtype")
	flags := b.u32(4)
	for i, option := range []string{" --src-type ", " --dst-type "} {
		if b.u16(2*i) == 0 {
			continue
		}
		list, err := listed(uint32(b.u16(2*i)), types...)
		if err != nil {
			return err
		}
		r.add(unless(flags&(1<<i) != 0, option), list)
	}
	return r.flags(flags&^3, flag{4, " --limit-iface-in"}, flag{8, " --limit-iface-out"})
}

// flags adds an option for each bit.
func (r *saveRule) flags(bits uint32, known ...flag) error {
	for _, f := range known {
		if bits&f.bit != 0 {
			r.add(f.text)
			bits &^= f.bit
		}
	}
	if bits != 0 {
		return errForm
	}
	return nil
}

func (r *saveRule) statistic(b info) error {
	mode, not := b.u16(0), b.u16(2) == 1
	r.add(" -m statistic --mode ")
	switch {
	case mode > 1 || b.u16(2) > 1:
		return errForm
	case mode == 0:
		r.add("random", unless(not, " --probability "), strconv.FormatFloat(float64(b.u32(4))/(1<<31), 'f', 11, 64))
	default:
		r.add("nth", unless(not, " --every "), strconv.FormatUint(uint64(b.u32(4))+1, 10), " --packet ", number(b.u32(8)))
	}
	return nil
}

func number(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

func (r *saveRule) recent(b info) error {
	name, err := b.name(10, 200)
	check, side := uint32(b[8]), b[210]
	if err != nil || b[9] > 1 || side > 1 {
		return errForm
	}
	r.add(" -m recent", unless(b[9] != 0, ""))
	err = r.flags(check&^48, flag{2, " --set"}, flag{1, " --rcheck"}, flag{4, " --update"}, flag{8, " --remove"})
	if seconds := b.u32(0); seconds != 0 {
		r.add(" --seconds ", number(seconds))
	}
	_ = r.flags(check&32, flag{32, " --reap"})
	if hits := b.u32(4); hits != 0 {
		r.add(" --hitcount ", number(hits))
	}
	_ = r.flags(check&16, flag{16, " --rttl"})
	r.add(" --name ", name, " --mask ", ip(b[212:212+r.bytes()]), [...]string{" --rsource", " --rdest"}[side])
	return err
}

func (r *saveRule) multiport(b info) error {
	kind, count := b[0], int(b[1])
	if kind > 2 || count == 0 || count > 15 || b[32+count-1] != 0 {
		return errForm
	}
	r.add(" -m multiport", unless(b[47] != 0, [...]string{" --sports ", " --dports ", " --ports "}[kind]))
	for i := range count {
		if i > 0 {
			r.add(map[bool]string{true: ":", false: ","}[b[32+i-1] != 0])
		}
		r.add(b.port(2 + 2*i))
	}
	return nil
}
