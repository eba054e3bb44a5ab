package nftwire

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"nodegate/internal/ruleset"
)

// foreignRule decodes a rule of another program.
type foreignRule struct {
	rule
	t       *foreignTable
	link    func(uint32) string
	network string // ip or ip6, if the rule has compared meta nfproto
}

// read adds the text of one expression. Unknown parts become a word with a question mark:
// a condition that is not known. An expression that may end the packet's way also becomes "queue".
func (r *foreignRule) read(name string, b []byte) {
	before := len(r.words)
	if r.readKnown(name, b) {
		return
	}
	r.words = r.words[:before]
	switch name {
	case "payload", "meta", "ct", "fib", "rt", "exthdr", "socket", "osf", "hash", "numgen", "bitwise", "byteorder", "xfrm", "tunnel", "inner":
		clear(r.registers[:]) // whatever reads a register is not known
		r.addWords("?" + name)
	case "cmp", "range", "limit", "quota", "connlimit", "match", "last", "dynset":
		r.addWords("?" + name)
	case "lookup":
		if r.addWords("?" + name); isMapped(b) {
			r.addWords("queue")
		}
	default:
		r.addWords("?"+name, "queue")
	}
}

// isMapped reports whether a lookup loads a value, which may be a verdict.
func isMapped(b []byte) bool {
	a, err := splitAttributes(b)
	return err != nil || a[unix.NFTA_LOOKUP_DREG] != nil
}

// readKnown reports whether it knows an expression.
func (r *foreignRule) readKnown(name string, b []byte) bool {
	a, err := splitAttributes(b)
	if err != nil {
		return false
	}
	switch name {
	case "counter", "log", "last", "flow_offload":
		return true
	case "notrack":
		r.addWords(name)
		return true
	case "queue":
		const bypass = 1 // NFT_QUEUE_FLAG_BYPASS
		number, total, flags := a[unix.NFTA_QUEUE_NUM], a[unix.NFTA_QUEUE_TOTAL], a[unix.NFTA_QUEUE_FLAGS]
		if len(number) != 2 || len(total) == 2 && binary.BigEndian.Uint16(total) > 1 {
			return false
		}
		if r.addWords("queue", "num", fmt.Sprint(binary.BigEndian.Uint16(number))); len(flags) == 2 &&
			binary.BigEndian.Uint16(flags)&bypass != 0 {
			r.addWords("bypass")
		}
		return true
	case "connlimit":
		const count, flags, over = 1, 2, 1 // NFTA_CONNLIMIT_COUNT, NFTA_CONNLIMIT_FLAGS, NFT_CONNLIMIT_F_INV
		r.addWords("ct", "count")
		if a.number(flags)&over != 0 {
			r.addWords("over")
		}
		r.addWords(fmt.Sprint(a.number(count)))
		return true
	case "payload":
		return r.readPayload(&a)
	case "meta":
		return r.readForeignMeta(&a)
	case "ct":
		return r.readCT(&a)
	case "cmp":
		return r.readForeignComparison(b)
	case "range":
		return r.readRange(&a)
	case "lookup":
		return r.readForeignLookup(&a)
	case "objref":
		const counter, helper, timeout = 1, 3, 7
		return a[unix.NFTA_OBJREF_IMM_TYPE] != nil && slices.Contains([]uint64{counter, helper, timeout}, a.number(unix.NFTA_OBJREF_IMM_TYPE))
	case "redir":
		return r.readRedirect(&a)
	case "nat":
		family := map[uint64]string{unix.NFPROTO_IPV4: ruleset.IPv4, unix.NFPROTO_IPV6: ruleset.IPv6}[a.number(unix.NFTA_NAT_FAMILY)]
		own := r.family
		r.family = family
		err = r.readNAT(b)
		r.family = own
		return err == nil && family != ""
	case "masq":
		r.addWords("masquerade")
		return true
	}
	return r.readExpression(name, b) == nil
}

// set loads a register and reports whether that is possible.
func (r *foreignRule) set(register uint64, t term) bool { return r.setRegister(register, t) == nil }

// readPayload reads a field of a header. The network header is known in a table of one family, or once
// the rule has compared the packet's family.
func (r *foreignRule) readPayload(a *attributes) bool {
	if a[unix.NFTA_PAYLOAD_DREG] == nil {
		return false // writes the packet
	}
	network := r.network
	if r.family == ruleset.IPv4 || r.family == ruleset.IPv6 {
		network = r.family
	}
	base, offset, size := a.number(unix.NFTA_PAYLOAD_BASE), a.number(unix.NFTA_PAYLOAD_OFFSET), int(a.number(unix.NFTA_PAYLOAD_LEN))
	list := fields(network)
	if network == "" {
		list = list[2:] // ports only
	}
	switch network {
	case ruleset.IPv4:
		list = append(list, field{unix.NFT_PAYLOAD_NETWORK_HEADER, 9, "ip protocol", proto},
			field{unix.NFT_PAYLOAD_NETWORK_HEADER, 8, "ip ttl", octet})
	case ruleset.IPv6:
		list = append(list, field{unix.NFT_PAYLOAD_NETWORK_HEADER, 6, "ip6 nexthdr", proto})
	}
	list = append(list, field{unix.NFT_PAYLOAD_LL_HEADER, 12, "meta " +
		"protocol", etherType}, field{unix.NFT_PAYLOAD_TRANSPORT_HEADER, 13, "tcp flags", tcpFlags})
	for _, f := range list {
		if f.base == base && f.offset == offset && size <= f.kind.size() && (size == f.kind.size() || f.kind == ipv4 || f.kind == ipv6) {
			return r.set(a.number(unix.NFTA_PAYLOAD_DREG), term{words: f.words, kind: f.kind, size: size, whole: f.kind.size()})
		}
	}
	return false
}

func (r *foreignRule) readForeignMeta(a *attributes) bool {
	key := a.number(unix.NFTA_META_KEY)
	if a[unix.NFTA_META_SREG] != nil {
		switch key {
		case unix.NFT_META_MARK:
			return r.readMark("meta mark", a.number(unix.NFTA_META_SREG))
		case unix.NFT_META_PRIORITY, unix.NFT_META_NFTRACE, unix.NFT_META_PKTTYPE, unix.NFT_META_SECMARK:
			return true // no match of a later rule that this package knows
		}
		return false
	}
	t := map[uint64]term{
		unix.NFT_META_L4PROTO: {words: "meta l4proto", kind: proto, size: 1}, unix.NFT_META_MARK: {words: "meta mark", kind: mark, size: 4},
		unix.NFT_META_NFPROTO:  {words: "meta nfproto", kind: nfproto, size: 1},
		unix.NFT_META_PROTOCOL: {words: "meta protocol", kind: etherType, size: 2},
		unix.NFT_META_IIFNAME:  {words: "meta iifname", kind: ifname, size: unix.IFNAMSIZ},
		unix.NFT_META_OIFNAME:  {words: "meta oifname", kind: ifname, size: unix.IFNAMSIZ},
		unix.NFT_META_IIF:      {words: "meta iif", kind: linkIndex, size: 4}, unix.NFT_META_OIF: {words: "meta oif", kind: linkIndex, size: 4},
	}[key]
	return t.size > 0 && r.set(a.number(unix.NFTA_META_DREG), t)
}

func (r *foreignRule) readCT(a *attributes) bool {
	const direction, sreg, zone = 3, 4, 17 // NFTA_CT_DIRECTION, NFTA_CT_SREG, NFT_CT_ZONE
	if a[sreg] != nil && a.number(unix.NFTA_CT_KEY) == zone {
		t, err := r.getRegister(a.number(sreg))
		if err != nil || len(t.value) < 2 || a[direction] != nil {
			return false
		}
		r.addWords("ct zone", "set", fmt.Sprint(binary.NativeEndian.Uint16(t.value)))
		return true
	}
	if a[sreg] != nil {
		if a.number(unix.NFTA_CT_KEY) == unix.NFT_CT_MARK {
			return r.readMark("ct mark", a.number(sreg))
		}
		return a.number(unix.NFTA_CT_KEY) == unix.NFT_CT_LABELS
	}
	t := map[uint64]term{
		unix.NFT_CT_STATE:  {words: "ct state", kind: ctState, size: 4},
		unix.NFT_CT_MARK:   {words: "ct mark", kind: mark, size: 4},
		unix.NFT_CT_STATUS: {words: "ct status", kind: ctStatus, size: 4},
	}[a.number(unix.NFTA_CT_KEY)]
	if a[direction] != nil {
		const original, destinationIP, destinationIP6 = 0, 20, 22 // NFT_CT_DST_IP
		t = map[uint64]term{
			destinationIP:  {words: "ct original ip daddr", kind: ipv4, size: 4, whole: 4},
			destinationIP6: {words: "ct original ip6 daddr", kind: ipv6, size: 16, whole: 16},
		}[a.number(unix.NFTA_CT_KEY)]
		if a.number(direction) != original {
			return false
		}
	}
	return t.size > 0 && r.set(a.number(unix.NFTA_CT_DREG), t)
}

// readMark reads the value that a rule gives to a mark: a number, or one of the marks with bits set,
// removed or toggled.
func (r *foreignRule) readMark(key string, register uint64) bool {
	t, err := r.getRegister(register)
	if err != nil {
		return false
	}
	switch {
	case t.value != nil:
		value, err := mark.text(t.value)
		r.addWords(key, "set", value)
		return err == nil
	case t.kind != mark || t.masked && (len(t.mask) != 4 || len(t.xor) != 4):
		return false
	}
	r.addWords(key, "set", t.words)
	if t.masked {
		mask, xor := binary.NativeEndian.Uint32(t.mask), binary.NativeEndian.Uint32(t.xor)
		r.addWords("&", fmt.Sprint(mask), "^", fmt.Sprint(xor))
	}
	return true
}

func (r *foreignRule) readForeignComparison(b []byte) bool {
	t, code, value, err := r.readOperands(b)
	if err != nil || t.words == "" || t.modulus != 0 && (t.masked || len(value) != 4) {
		return false
	}
	op, ok := map[uint64]string{unix.NFT_CMP_EQ: "==", unix.NFT_CMP_NEQ: "!=", unix.NFT_CMP_LT: "<", unix.NFT_CMP_LTE: "<=",
		unix.NFT_CMP_GT: ">", unix.NFT_CMP_GTE: ">="}[code]
	switch {
	case !ok:
		return false
	case t.kind == octet || t.kind == tcpFlags || (t.kind == ctState || t.kind == ctStatus) && op == "==" && t.masked:
		return r.compareFlags(t, op, value)
	case t.modulus != 0:
		r.addWords(t.words, op, fmt.Sprint(binary.NativeEndian.Uint32(value)))
		return op == "==" || op == "!="
	case code == unix.NFT_CMP_LTE || code == unix.NFT_CMP_GTE:
		return r.compareBound(t, code, value)
	case code != unix.NFT_CMP_EQ && code != unix.NFT_CMP_NEQ:
		return false
	case t.kind == linkIndex || t.kind == nfproto || t.kind == etherType || t.kind == proto || t.kind == addressType || t.kind == ctState &&
		!t.masked:
		return r.compareNamed(t, op, value)
	}
	left, op, right, err := t.formatComparison(op, value)
	if err != nil {
		return false
	}
	r.addWords(r.out.Match(left, op, right))
	return true
}

// compareBound reads a comparison with the first or the last value of a range that has no other end.
func (r *foreignRule) compareBound(t *term, code uint64, value []byte) bool {
	first, last := make([]byte, len(value)), value
	if code == unix.NFT_CMP_GTE {
		first, last = value, []byte(strings.Repeat("\xff", len(value)))
	}
	span, ok := t.kind.spanText(first, last)
	r.addWords(t.words, span)
	return ok && !t.masked && (t.whole == 0 || t.whole == t.size)
}

// compareNamed reads a comparison with a value that has a name. A comparison of the family shows which network header
// later expressions read.
func (r *foreignRule) compareNamed(t *term, op string, value []byte) bool {
	right, ok := t.kind.foreignText(value, r.link)
	if (t.kind == nfproto || t.kind == etherType) && op == "==" {
		r.network = map[string]string{"ipv4": ruleset.IPv4, "ipv6": ruleset.IPv6, "ip": ruleset.IPv4, "ip6": ruleset.IPv6}[right]
	}
	if op == "!=" {
		right = "!= " + right
	}
	r.addWords(t.words, right)
	return ok && !t.masked
}

// readRange reads a comparison with a range, which nft uses for !=.
func (r *foreignRule) readRange(a *attributes) bool {
	const sreg, op, from, to = 1, 2, 3, 4 // NFTA_RANGE_
	t, err := r.getRegister(a.number(sreg))
	if err != nil || t.masked || t.whole != t.size || t.words == "" {
		return false
	}
	first, _, err := r.readData(a[from])
	last, _, failed := r.readData(a[to])
	span, ok := t.kind.spanText(first, last)
	if err != nil || failed != nil || !ok {
		return false
	}
	if r.addWords(t.words); a.number(op) == 1 { // NFT_RANGE_NEQ
		r.addWords("!=")
	}
	r.addWords(span)
	return true
}

// readForeignLookup reads a match of a set, or a map of verdicts.
func (r *foreignRule) readForeignLookup(a *attributes) bool {
	s := r.sets[string(a.text(unix.NFTA_LOOKUP_SET))]
	if s == nil || r.t.table.Sets[s.name] == nil {
		return false
	}
	at, err := slot(a.number(unix.NFTA_LOOKUP_SREG))
	if err != nil {
		return false
	}
	words := make([]string, 0, len(s.key))
	for _, k := range s.key {
		if at >= len(r.registers) || r.registers[at].size == 0 {
			return false
		}
		t := &r.registers[at]
		if t.words == "" || t.masked || t.whole > t.size || t.modulus != 0 || t.size != k.foreignSize() {
			return false
		}
		words = append(words, t.words)
		at += slots(t.size)
	}
	r.addWords(strings.Join(words, " . "))
	not := a.number(unix.NFTA_LOOKUP_FLAGS)&1 != 0
	leads := a[unix.NFTA_LOOKUP_DREG] != nil
	switch {
	case leads && (a.number(unix.NFTA_LOOKUP_DREG) != unix.NFT_REG_VERDICT || not):
		return false
	case leads:
		r.addWords("vmap")
	case not:
		r.addWords("!=")
	}
	r.addWords(r.setText(s))
	return true
}

// setText returns a named set by its name, and the elements of an anonymous one if they are few.
func (r *foreignRule) setText(s *wireSet) string {
	elements := r.t.table.Sets[s.name].Elements
	if s.out != nil || len(elements) > 8 || len(elements) == 0 {
		return "@" + s.name
	}
	list := make([]string, 0, len(elements))
	for _, e := range elements {
		text := e.String()
		switch {
		case e.Verdict == "jump":
			text += " : jump " + e.Target
		case e.Target != "":
			text += " : goto " + e.Target
		case e.Verdict != "":
			text += " : " + e.Verdict
		}
		list = append(list, text)
	}
	return "{ " + strings.Join(list, ", ") + " }"
}

func (r *foreignRule) readRedirect(a *attributes) bool {
	const low, high = 1, 2 // NFTA_REDIR_REG_PROTO_MIN, NFTA_REDIR_REG_PROTO_MAX
	if a[low] == nil {
		r.addWords("redirect")
		return true
	}
	t, err := r.getRegister(a.number(low))
	if err != nil || len(t.value) != 2 || a[high] != nil && a.number(high) != a.number(low) {
		return false
	}
	r.addWords("redirect to", fmt.Sprint(":", binary.BigEndian.Uint16(t.value)))
	return true
}
