package nftwire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"nodegate/internal/ruleset"
)

// kind is the type of a value. The first constants are nft's own numbers for set types
// (include/datatype.h).
type kind uint32

const (
	integer kind = 4
	ipv4    kind = 7
	ipv6    kind = 8
	proto   kind = 12
	service kind = 13
	mark    kind = 19

	ifname kind = 1000 + iota
	ctState
	ctStatus
	addressType
)

// kinds returns the parts of a set's type. A concatenation uses six bits for each part.
func kinds(set uint32) []kind {
	var list []kind
	for shift := 30; shift >= 0; shift -= 6 {
		if k := kind(set >> shift & 63); k != 0 {
			list = append(list, k)
		}
	}
	return list
}

func (k kind) size() int {
	switch k {
	case ipv6:
		return 16
	case proto:
		return 1
	case service:
		return 2
	}
	return 4
}

// text returns a value in nft's syntax.
func (k kind) text(b []byte) (string, error) {
	if k != ifname && len(b) != k.size() {
		return "", fmt.Errorf("a value of %d bytes, want %d", len(b), k.size())
	}
	switch k {
	case ipv4, ipv6:
		a, _ := netip.AddrFromSlice(b)
		return a.String(), nil
	case proto:
		switch b[0] {
		case 6:
			return "tcp", nil
		case 17:
			return "udp", nil
		case 132:
			return "sctp", nil
		}
	case service:
		return strconv.Itoa(int(binary.BigEndian.Uint16(b))), nil
	case integer, mark:
		return strconv.FormatUint(uint64(binary.NativeEndian.Uint32(b)), 10), nil
	case ifname:
		if name, padding, ended := bytes.Cut(b, []byte{0}); ended {
			if len(bytes.Trim(padding, "\x00")) == 0 {
				return string(name), nil
			}
		} else if len(b) > 0 {
			return string(b) + "*", nil // a prefix comparison
		}
	case addressType:
		if binary.NativeEndian.Uint32(b) == 2 {
			return "local", nil
		}
	case ctState, ctStatus:
		return k.flags(binary.NativeEndian.Uint32(b))
	}
	return "", fmt.Errorf("unknown value %x", b)
}

// flags returns the names of the set bits, in nft's order (src/ct.c).
func (k kind) flags(bits uint32) (string, error) {
	names := []string{"", "invalid", "established", "related", "new", "", "", "untracked"}[1:]
	if k == ctStatus {
		names = []string{"expected", "seen-reply", "assured", "confirmed", "snat", "dnat"}
	}
	var list []string
	for i, name := range names {
		if name != "" && bits&(1<<i) != 0 {
			bits &^= 1 << i
			list = append(list, name)
		}
	}
	if bits != 0 || list == nil {
		return "", fmt.Errorf("unknown flags %#x", bits)
	}
	return strings.Join(list, ", "), nil
}

// partTexts returns the parts of a set's key or data. The parts of a concatenation are padded to four
// bytes.
func partTexts(list []kind, b []byte) ([]string, error) {
	found := make([]string, 0, len(list))
	for _, k := range list {
		n := k.size()
		if len(b) < n {
			return nil, fmt.Errorf("a value of %d bytes, want %d", len(b), n)
		}
		text, err := k.text(b[:n])
		if err != nil {
			return nil, err
		}
		found = append(found, text)
		if len(list) > 1 {
			n = (n + 3) &^ 3
		}
		if len(b) < n {
			return nil, fmt.Errorf("a value of %d bytes, want %d", len(b), n)
		}
		b = b[n:]
	}
	if len(b) > 0 || len(list) == 0 {
		return nil, fmt.Errorf("a value has %d bytes of unknown type", len(b))
	}
	return found, nil
}

// nativeNumber decodes a number in the machine's byte order.
func nativeNumber(b string) uint32 {
	if len(b) != 4 {
		return 0
	}
	return binary.NativeEndian.Uint32([]byte(b))
}

// addressRange returns the addresses from first to last in nft's syntax.
func addressRange(first, last netip.Addr) string {
	if first == last {
		return first.String()
	}
	for bits := range first.BitLen() {
		if p := netip.PrefixFrom(first, bits); p.Masked() == p && ruleset.Last(p) == last {
			return p.String()
		}
	}
	return "range " + first.String() + ", " + last.String()
}
