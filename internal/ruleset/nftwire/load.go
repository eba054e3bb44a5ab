package nftwire

import (
	"fmt"
	"net"
	"strings"

	"golang.org/x/sys/unix"

	"nodegate/internal/ruleset"
)

// field is a part of a packet's header.
type field struct {
	base, offset uint64
	words        string
	kind         kind
}

// fields returns the header fields that rules compare.
func fields(family string) []field {
	network := []field{{unix.NFT_PAYLOAD_NETWORK_HEADER, 12, "ip saddr", ipv4}, {unix.NFT_PAYLOAD_NETWORK_HEADER, 16, "ip daddr", ipv4}}
	if family == ruleset.IPv6 {
		network = []field{{unix.NFT_PAYLOAD_NETWORK_HEADER, 8, "ip6 saddr", ipv6}, {unix.NFT_PAYLOAD_NETWORK_HEADER, 24, "ip6 daddr", ipv6}}
	}
	return append(network, field{unix.NFT_PAYLOAD_TRANSPORT_HEADER, 0, "th sport", service},
		field{unix.NFT_PAYLOAD_TRANSPORT_HEADER, 2, "th dport", service})
}

// readLoad reads the expressions that load a value into a register.
func (r *rule) readLoad(name string, b []byte) error {
	var need, may uint32
	switch name {
	case "payload":
		need = maskOf(unix.NFTA_PAYLOAD_DREG, unix.NFTA_PAYLOAD_BASE, unix.NFTA_PAYLOAD_OFFSET, unix.NFTA_PAYLOAD_LEN)
	case "meta":
		need, may = maskOf(unix.NFTA_META_KEY), maskOf(unix.NFTA_META_DREG, unix.NFTA_META_SREG)
	case "ct":
		need = maskOf(unix.NFTA_CT_DREG, unix.NFTA_CT_KEY)
	case "fib":
		need = maskOf(unix.NFTA_FIB_DREG, unix.NFTA_FIB_RESULT, unix.NFTA_FIB_FLAGS)
	case "numgen":
		need, may = maskOf(unix.NFTA_NG_DREG, unix.NFTA_NG_MODULUS, unix.NFTA_NG_TYPE), maskOf(unix.NFTA_NG_OFFSET)
	}
	a, err := readAttributes(b, need, may)
	if err != nil {
		return err
	}
	switch name {
	case "payload":
		size := int(a.number(unix.NFTA_PAYLOAD_LEN))
		for _, f := range r.fields {
			if f.base != a.number(unix.NFTA_PAYLOAD_BASE) || f.offset != a.number(unix.NFTA_PAYLOAD_OFFSET) || size > f.kind.size() {
				continue
			}
			words := f.words
			switch {
			case f.kind == service && size != f.kind.size(), f.kind == service && r.protocol && r.depends == "":
				return errForm // nft prints this form with other words
			case f.kind == service && r.protocol:
				words = r.dropDependency() + strings.TrimPrefix(words, "th")
			}
			r.depends = ""
			return r.setRegister(a.number(unix.NFTA_PAYLOAD_DREG), term{words: words, kind: f.kind, size: size, whole: f.kind.size()})
		}
	case "meta":
		return r.readMeta(&a)
	case "ct":
		switch a.number(unix.NFTA_CT_KEY) {
		case unix.NFT_CT_STATE:
			return r.setRegister(a.number(unix.NFTA_CT_DREG), term{words: "ct state", kind: ctState, size: 4})
		case unix.NFT_CT_STATUS:
			return r.setRegister(a.number(unix.NFTA_CT_DREG), term{words: "ct status", kind: ctStatus, size: 4})
		}
	case "fib":
		from := map[uint64]string{unix.NFTA_FIB_F_SADDR: "saddr", unix.NFTA_FIB_F_DADDR: "daddr"}[a.number(unix.NFTA_FIB_FLAGS)]
		if a.number(unix.NFTA_FIB_RESULT) == unix.NFT_FIB_RESULT_ADDRTYPE && from != "" {
			return r.setRegister(a.number(unix.NFTA_FIB_DREG), term{words: "fib " + from + " type", kind: addressType, size: 4})
		}
	case "numgen":
		modulus, mode := a.number(unix.NFTA_NG_MODULUS), a.number(unix.NFTA_NG_TYPE)
		if a.number(unix.NFTA_NG_OFFSET) == 0 && modulus > 0 && mode <= unix.NFT_NG_RANDOM {
			words := fmt.Sprint("numgen ", map[bool]string{true: "random", false: "inc"}[mode == unix.NFT_NG_RANDOM], " mod ", modulus)
			return r.setRegister(a.number(unix.NFTA_NG_DREG), term{words: words, kind: integer, size: 4, modulus: int(modulus)})
		}
	}
	return errForm
}

// dropDependency removes the comparison of a protocol that nft adds before a port: it prints "tcp dport 80" for
// "meta l4proto tcp th dport 80" (until 1.33, kube-proxy writes that form). It returns the protocol.
func (r *rule) dropDependency() string {
	protocol := r.depends
	r.words, r.protocol, r.depends = r.words[:r.before], false, ""
	return protocol
}

func (r *rule) readMeta(a *attributes) error {
	key := a.number(unix.NFTA_META_KEY)
	if a[unix.NFTA_META_SREG] != nil {
		if key != unix.NFT_META_MARK {
			return errForm
		}
		return r.readMarkWrite(a.number(unix.NFTA_META_SREG))
	}
	register := a.number(unix.NFTA_META_DREG)
	switch key {
	case unix.NFT_META_L4PROTO:
		return r.setRegister(register, term{words: "meta l4proto", kind: proto, size: 1})
	case unix.NFT_META_MARK:
		return r.setRegister(register, term{words: "meta mark", kind: mark, size: 4})
	case unix.NFT_META_IIFNAME:
		return r.setRegister(register, term{words: "meta iifname", kind: ifname, size: unix.IFNAMSIZ})
	case unix.NFT_META_OIFNAME:
		return r.setRegister(register, term{words: "meta oifname", kind: ifname, size: unix.IFNAMSIZ})
	}
	return errForm
}

// lookupKey returns the words of the key that a lookup reads from register on, and the last term of the
// key.
func (r *rule) lookupKey(register uint64, s *wireSet) (words string, one *term, err error) {
	at, err := slot(register)
	if err != nil {
		return "", nil, err
	}
	for left := slots(s.keyLen); left > 0; {
		if at >= len(r.registers) || r.registers[at].size == 0 {
			return "", nil, fmt.Errorf("register %d is read before it is loaded", register)
		}
		t := &r.registers[at]
		if t.words == "" || t.masked || t.whole > t.size {
			return "", nil, errForm
		}
		if words != "" {
			words += " . "
		}
		words, one = words+t.words, t
		at, left = at+slots(t.size), left-slots(t.size)
	}
	if words == "" || len(s.key) == 1 && s.key[0].size() != one.size {
		return "", nil, errForm
	}
	return words, one, nil
}

func (r *rule) readLookup(b []byte) error {
	a, err := readAttributes(b, maskOf(unix.NFTA_LOOKUP_SET, unix.NFTA_LOOKUP_SREG),
		maskOf(unix.NFTA_LOOKUP_DREG, unix.NFTA_LOOKUP_FLAGS, unix.NFTA_LOOKUP_SET_ID))
	if err != nil {
		return err
	}
	s := r.sets[string(a.text(unix.NFTA_LOOKUP_SET))]
	if s == nil {
		return fmt.Errorf("set %.60q is missing from the table", a.text(unix.NFTA_LOOKUP_SET))
	}
	words, one, err := r.lookupKey(a.number(unix.NFTA_LOOKUP_SREG), s)
	if err != nil {
		return err
	}
	leads := a[unix.NFTA_LOOKUP_DREG] != nil
	if leads && a.number(unix.NFTA_LOOKUP_DREG) != unix.NFT_REG_VERDICT {
		if s.out != nil || s.data == nil {
			return errForm
		}
		size := 0
		for _, k := range s.data {
			size += 4 * slots(k.size())
		}
		t := *one
		t.words, t.mapped, t.size = words, s, size
		return r.setRegister(a.number(unix.NFTA_LOOKUP_DREG), t)
	}
	right := "@" + s.name
	if s.out == nil {
		var keys []string
		if right, keys, err = r.setMembers(s, one); err != nil {
			return err
		}
		if strings.HasSuffix(words, " saddr") {
			r.out.Sources = keys
		}
	}
	switch op := map[uint64]string{0: "==", 1: "!="}[a.number(unix.NFTA_LOOKUP_FLAGS)]; {
	case leads && op == "==":
		r.addWords(words + " vmap " + right)
	case leads || op == "" || one.modulus != 0:
		return errForm
	default:
		r.addWords(ruleset.MatchText(words, op, right))
	}
	return nil
}

// setMembers returns the elements of an anonymous set in nft's syntax. If numgen chooses among them,
// members adds them to the rule. keys is filled only for a set, not for a map.
func (r *rule) setMembers(s *wireSet, by *term) (text string, keys []string, err error) {
	n := 0
	if by.modulus != 0 {
		r.out.Entries = make([]ruleset.NFTEntry, 0, len(s.elements))
	}
	err = s.eachElement(func(e *element, key []string) error {
		words, to := key[0], e.verdict.chain
		if len(key) > 1 {
			return errForm
		}
		switch {
		case s.data != nil:
			values, err := partTexts(s.data, []byte(e.data))
			if err != nil {
				return err
			}
			if len(values) != 2 || s.data[1] != service {
				return errForm
			}
			to = net.JoinHostPort(values[0], values[1])
			words += " : " + values[0] + " . " + values[1]
		case e.verdict != verdict{}:
			words += " : " + e.verdict.words()
		case by.modulus == 0:
			keys = append(keys, words)
		}
		if by.modulus != 0 {
			r.out.Entries = append(r.out.Entries, ruleset.NFTEntry{Key: int(nativeNumber(e.key)), Target: to})
		}
		switch n++; {
		case n == 1:
			text = words
		case n <= 8:
			text += ", " + words
		case n == 9:
			text += ", ..."
		}
		return nil
	})
	s.elements = nil
	return "{ " + text + " }", keys, err
}

// readUpdate reads the expression with which a rule adds a packet's key to a set.
func (r *rule) readUpdate(b []byte) error {
	a, err := readAttributes(b, maskOf(unix.NFTA_DYNSET_SET_NAME, unix.NFTA_DYNSET_OP, unix.NFTA_DYNSET_SREG_KEY),
		maskOf(unix.NFTA_DYNSET_SET_ID, unix.NFTA_DYNSET_TIMEOUT, unix.NFTA_DYNSET_FLAGS, unix.NFTA_DYNSET_PAD))
	if err != nil {
		return err
	}
	s := r.sets[string(a.text(unix.NFTA_DYNSET_SET_NAME))]
	if s == nil || s.out == nil {
		return fmt.Errorf("set %.60q is missing from the table", a.text(unix.NFTA_DYNSET_SET_NAME))
	}
	words, _, err := r.lookupKey(a.number(unix.NFTA_DYNSET_SREG_KEY), s)
	if err != nil {
		return err
	}
	r.addWords("update @" + s.out.Name + " { " + words + " }")
	return nil
}
