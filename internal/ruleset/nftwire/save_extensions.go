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

// info is the struct of an xtables match or target, padded to eight bytes. The structs are defined
// in include/uapi/linux/netfilter; a comment beside each reader names the file.
// (github.com/google/nftables/xt covers half of them, and reads some truncated ones without an
// error.)
type info []byte

func (b info) u16(at int) uint16  { return binary.NativeEndian.Uint16(b[at:]) }
func (b info) u32(at int) uint32  { return binary.NativeEndian.Uint32(b[at:]) }
func (b info) port(at int) string { return strconv.Itoa(int(b.u16(at))) }
func (b info) text(at, size int) string {
	s, _, _ := bytes.Cut(b[at:at+size], []byte{0})
	return string(s)
}

// name returns a string that must be a single word.
func (b info) name(at, size int) (string, error) {
	s := b.text(at, size)
	if !isPlain(s) {
		return "", errText
	}
	return s, nil
}

// readExtension reads an xtables match or target.
func (r *saveRule) readExtension(kind string, b []byte) error {
	// NFTA_TARGET_* have the same numbers.
	a, err := readAttributes(b, maskOf(unix.NFTA_MATCH_NAME, unix.NFTA_MATCH_REV, unix.NFTA_MATCH_INFO), 0)
	if err != nil {
		return err
	}
	name := string(a.text(unix.NFTA_MATCH_NAME)) + "." + strconv.FormatUint(a.number(unix.NFTA_MATCH_REV), 10)
	size, read := r.matchReader(name)
	if kind == "target" {
		size, read = r.targetReader(name)
	}
	switch b = a[unix.NFTA_MATCH_INFO]; {
	case read == nil:
		err = errors.New("unsupported extension")
	case len(b) < size || len(b) > (size+7)&^7:
		err = fmt.Errorf("%d bytes, want %d", len(b), size)
	default:
		err = read(b)
	}
	if err != nil {
		return fmt.Errorf("%.32s: %w", name, err)
	}
	return nil
}

// matchReader returns the size of a match's struct and a function that reads it.
func (r *saveRule) matchReader(name string) (size int, read func(info) error) {
	switch name {
	case "comment.0": // xt_comment.h
		return 256, func(b info) error { return r.addComment(b.text(0, 256)) }
	case "conntrack.2": // xt_conntrack.h
		return 156, r.readConntrack
	case "conntrack.3":
		return 164, r.readConntrack
	case "addrtype.1": // xt_addrtype.h
		return 8, r.readAddrtype
	case "statistic.0": // xt_statistic.h
		return 24, r.readStatistic
	case "recent.1": // xt_recent.h
		return 228, r.readRecent
	case "multiport.1": // xt_multiport.h
		return 48, r.readMultiport
	case "nfacct.0", "nfacct.1": // xt_nfacct.h
		return 40, func(b info) error {
			name, err := b.name(0, 32)
			r.addMatch(" -m nfacct --nfacct-name  ", quoted(name)) // iptables prints two spaces
			return err
		}
	case "mark.1": // xt_mark.h
		return 9, func(b info) error { r.addMark(b[8] != 0, b.u32(0), b.u32(4)); return nil }
	case "tcp.0": // xt_tcpudp.h
		return 12, func(b info) error {
			if b[8]|b[9]|b[11]&^3 != 0 {
				return errForm // TCP options or flags
			}
			r.addTransport("tcp", b, b[4:], b[11])
			return nil
		}
	case "udp.0":
		return 10, func(b info) error { r.addTransport("udp", b, b[4:], b[8]); return nil }
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
				return errForm // SCTP chunks
			}
			r.addTransport("sctp", ports[0], ports[1], b[288])
			return nil
		}
	}
	return 0, nil
}

// addTransport writes two port ranges. The bits of not negate the source range and the destination
// range.
func (r *saveRule) addTransport(name string, source, destination info, not byte) {
	r.addMatch(" -m ", name)
	for i, ports := range []info{source, destination} {
		option, first, last := [...]string{" --sport ", " --dport "}[i], ports.port(0), ports.port(2)
		switch {
		case first == last:
			r.addMatch(negateIf(not&(1<<i) != 0, option), first)
		case first != "0" || last != "65535" || not&(1<<i) != 0:
			r.addMatch(negateIf(not&(1<<i) != 0, option), first, ":", last)
		}
	}
}

// flag is a bit and the text that iptables-nft-save prints for it.
type flag struct {
	bit  uint32
	text string
}

// bitTexts returns the texts of the set bits.
func bitTexts(bits uint32, known ...flag) (string, error) {
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

func (r *saveRule) readConntrack(b info) error {
	const state, alias = 1, 1 << 13 // XT_CONNTRACK_STATE, XT_CONNTRACK_STATE_ALIAS
	flags, not := b.u16(146), b.u16(148)
	states, err := bitTexts(uint32(b.u16(150)), flag{1, "INVALID"}, flag{8, "NEW"}, flag{4, "RELATED"}, flag{2, "ESTABLISHED"},
		flag{256, "UNTRACKED"}, flag{64, "SNAT"}, flag{128, "DNAT"})
	switch {
	case err != nil || flags&^alias != state || not&^state != 0:
		return errForm // matches more than the state
	case flags&alias != 0:
		r.addMatch(" -m state", negateIf(not != 0, " --state "), states)
	default:
		r.addMatch(" -m conntrack", negateIf(not != 0, " --ctstate "), states)
	}
	return nil
}

func (r *saveRule) readAddrtype(b info) error {
	var types []flag
	for i, name := range []string{"UNSPEC", "UNICAST", "LOCAL", "BROADCAST", "ANYCAST", "MULTICAST", "BLACKHOLE", "UNREACHABLE", "PROHIBIT",
		"THROW", "NAT", "XRESOLVE"} {
		types = append(types, flag{1 << i, name})
	}
	r.addMatch(" -m addrtype")
	flags := b.u32(4)
	for i, option := range []string{" --src-type ", " --dst-type "} {
		if b.u16(2*i) == 0 {
			continue
		}
		list, err := bitTexts(uint32(b.u16(2*i)), types...)
		if err != nil {
			return err
		}
		r.addMatch(negateIf(flags&(1<<i) != 0, option), list)
	}
	return r.addFlags(flags&^3, flag{4, " --limit-iface-in"}, flag{8, " --limit-iface-out"})
}

// addFlags adds an option for each set bit.
func (r *saveRule) addFlags(bits uint32, known ...flag) error {
	for _, f := range known {
		if bits&f.bit != 0 {
			r.addMatch(f.text)
			bits &^= f.bit
		}
	}
	if bits != 0 {
		return errForm
	}
	return nil
}

func (r *saveRule) readStatistic(b info) error {
	mode, not := b.u16(0), b.u16(2) == 1
	r.addMatch(" -m statistic --mode ")
	switch {
	case mode > 1 || b.u16(2) > 1:
		return errForm
	case mode == 0:
		r.addMatch("random", negateIf(not, " --probability "), strconv.FormatFloat(float64(b.u32(4))/(1<<31), 'f', 11, 64))
	default:
		r.addMatch("nth", negateIf(not, " --every "), strconv.FormatUint(uint64(b.u32(4))+1, 10), " --packet ", number(b.u32(8)))
	}
	return nil
}

func number(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

func (r *saveRule) readRecent(b info) error {
	name, err := b.name(10, 200)
	check, side := uint32(b[8]), b[210]
	if err != nil || b[9] > 1 || side > 1 {
		return errForm
	}
	r.addMatch(" -m recent", negateIf(b[9] != 0, ""))
	err = r.addFlags(check&^48, flag{2, " --set"}, flag{1, " --rcheck"}, flag{4, " --update"}, flag{8, " --remove"})
	if seconds := b.u32(0); seconds != 0 {
		r.addMatch(" --seconds ", number(seconds))
	}
	_ = r.addFlags(check&32, flag{32, " --reap"})
	if hits := b.u32(4); hits != 0 {
		r.addMatch(" --hitcount ", number(hits))
	}
	_ = r.addFlags(check&16, flag{16, " --rttl"})
	r.addMatch(" --name ", name, " --mask ", ip(b[212:212+r.addressSize()]), [...]string{" --rsource", " --rdest"}[side])
	return err
}

func (r *saveRule) readMultiport(b info) error {
	kind, count := b[0], int(b[1])
	if kind > 2 || count == 0 || count > 15 || b[32+count-1] != 0 {
		return errForm
	}
	r.addMatch(" -m multiport", negateIf(b[47] != 0, [...]string{" --sports ", " --dports ", " --ports "}[kind]))
	for i := range count {
		if i > 0 {
			r.addMatch(map[bool]string{true: ":", false: ","}[b[32+i-1] != 0])
		}
		r.addMatch(b.port(2 + 2*i))
	}
	return nil
}
