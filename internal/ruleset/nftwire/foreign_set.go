package nftwire

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"nodegate/internal/nlattr"
	"nodegate/internal/ruleset"
	"nodegate/internal/sorted"
)

// Types of sets that only tables of other programs have (nft's include/datatype.h).
const (
	typeNFProto     = 2
	typeLinkIndex   = 20
	typeCTState     = 26
	typeCTStatus    = 28
	typeAddressType = 38
	typeLinkName    = 41
)

// foreignKinds returns the parts of a set's key, or nil if one is not known.
func foreignKinds(set uint32) []kind {
	list := kinds(set)
	for i, k := range list {
		switch k {
		case integer, ipv4, ipv6, proto, service, mark:
		case typeNFProto:
			list[i] = nfproto
		case typeLinkIndex:
			list[i] = linkIndex
		case typeCTState:
			list[i] = ctState
		case typeCTStatus:
			list[i] = ctStatus
		case typeAddressType:
			list[i] = addressType
		case typeLinkName:
			list[i] = ifname
		default:
			return nil
		}
	}
	return list
}

// foreignSize returns the size of a value in a key.
func (k kind) foreignSize() int {
	switch k {
	case ifname:
		return unix.IFNAMSIZ
	case nfproto:
		return 1
	}
	return k.size()
}

func (t *foreignTable) addForeignSet(a *attributes) {
	const dynamic, object = 0x20, 0x40 // NFT_SET_EVAL: packets change it; NFT_SET_OBJECT
	name := string(a.text(unix.NFTA_SET_NAME))
	flags := a.number(unix.NFTA_SET_FLAGS)
	if t.sets[name] != nil {
		return
	}
	s := &wireSet{name: name, interval: flags&unix.NFT_SET_INTERVAL != 0, keyLen: int(a.number(unix.NFTA_SET_KEY_LEN)),
		key: foreignKinds(uint32(a.number(unix.NFTA_SET_KEY_TYPE)))}
	leads := flags&unix.NFT_SET_MAP != 0
	values := leads && uint32(a.number(unix.NFTA_SET_DATA_TYPE)) != unix.NFT_DATA_VERDICT
	t.sets[name], t.names = s, append(t.names, name)
	if len(s.key) == 0 || values || flags&(dynamic|object) != 0 || s.interval && len(s.key) > 1 {
		t.broken[name] = true
	}
	if flags&unix.NFT_SET_ANONYMOUS == 0 {
		s.out = &ruleset.NFTSet{Name: name}
	}
}

func (t *foreignTable) addForeignElements(a *attributes) {
	s := t.sets[string(a.text(unix.NFTA_SET_ELEM_LIST_SET))]
	if s == nil || t.broken[s.name] {
		return
	}
	for b := a[unix.NFTA_SET_ELEM_LIST_ELEMENTS]; len(b) > 0; {
		_, one, rest, err := nlattr.Next(b)
		if b = rest; err == nil {
			err = t.addElement(s, one)
		}
		if err != nil || len(s.elements) > mostElements {
			t.broken[s.name], s.elements = true, nil
			return
		}
	}
}

// finishSets gives the table the sets that are complete when the first rule comes.
func (t *foreignTable) finishSets() {
	if t.finished {
		return
	}
	t.finished = true
	for _, name := range t.names {
		s := t.sets[name]
		if t.broken[name] {
			continue
		}
		out := &ruleset.NFTSet{Name: name}
		sorted.By(s.elements, func(a, b element) int {
			if a.key == b.key {
				return map[bool]int{true: -1, false: 1}[a.end && !b.end]
			}
			return strings.Compare(a.key, b.key)
		})
		ok := true
		for i := range s.elements {
			e := &s.elements[i]
			if e.end {
				continue
			}
			key, good := foreignKey(s.key, []byte(e.key))
			if good && s.interval {
				key[0], good = foreignInterval(s.key[0], e.key, s.elements[i+1:])
			}
			ok = ok && good
			one := ruleset.NFTElement{Key: key, Target: e.verdict.chain, Verdict: e.verdict.word}
			if e.verdict.way == "jump" {
				one.Verdict = "jump"
			}
			out.Elements = append(out.Elements, one)
		}
		if s.elements = nil; !ok {
			t.broken[name] = true
			continue
		}
		t.table.Sets[name] = out
	}
}

// foreignKey returns the parts of a key.
func foreignKey(list []kind, b []byte) (parts []string, ok bool) {
	for _, k := range list {
		n := k.foreignSize()
		if len(b) < n {
			return nil, false
		}
		text, ok := k.foreignText(b[:n], nil)
		if !ok {
			return nil, false
		}
		parts = append(parts, text)
		if len(list) > 1 {
			n = (n + 3) &^ 3
		}
		b = b[min(n, len(b)):]
	}
	return parts, len(b) == 0
}

// foreignInterval returns the interval that begins with key. The next element ends it.
func foreignInterval(k kind, key string, after []element) (string, bool) {
	last := bytes.Repeat([]byte{0xff}, len(key))
	if len(after) > 0 {
		last = []byte(after[0].key)
		for i := len(last) - 1; i >= 0; i-- {
			if last[i]--; last[i] != 0xff {
				break
			}
		}
	}
	return k.spanText([]byte(key), last)
}

// spanText returns the values from first to last: "10.0.0.0/8", "80-90".
func (k kind) spanText(first, last []byte) (string, bool) {
	switch k {
	case ipv4, ipv6:
		from, ok := netip.AddrFromSlice(first)
		to, good := netip.AddrFromSlice(last)
		if !ok || !good || to.Less(from) {
			return "", false
		}
		return addressRange(from, to), true
	case service:
		if len(first) != 2 || len(last) != 2 {
			return "", false
		}
		from, to := binary.BigEndian.Uint16(first), binary.BigEndian.Uint16(last)
		if from == to {
			return strconv.Itoa(int(from)), true
		}
		return strconv.Itoa(int(from)) + "-" + strconv.Itoa(int(to)), from < to
	}
	return "", false
}

// foreignText returns a value in nft's syntax. A protocol without a name is a number.
func (k kind) foreignText(b []byte, link func(uint32) string) (string, bool) {
	switch k {
	case proto:
		if len(b) == 1 {
			if text, err := k.text(b); err == nil {
				return text, true
			}
			return strconv.Itoa(int(b[0])), true
		}
	case nfproto:
		if len(b) == 1 {
			name := map[byte]string{unix.NFPROTO_IPV4: "ipv4", unix.NFPROTO_IPV6: "ipv6"}[b[0]]
			return name, name != ""
		}
	case linkIndex:
		if len(b) == 4 && link != nil {
			name := link(binary.NativeEndian.Uint32(b))
			return name, name != ""
		}
	case addressType:
		if len(b) == 4 {
			name := map[uint32]string{1: "unicast", 2: "local", 3: "broadcast", 5: "multicast"}[binary.NativeEndian.Uint32(b)]
			return name, name != ""
		}
	default:
		text, err := k.text(b)
		return text, err == nil && !strings.ContainsAny(text, " ,{}@")
	}
	return "", false
}
