package nftwire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The parts of a rule, in the order in which iptables-nft-save prints them.
const (
	bySource = iota
	byDestination
	byIn
	byOut
	byProtocol
	byMatches
	target
	parts
)

// saveRule decodes one rule.
type saveRule struct {
	rule
	parts  [parts][]byte
	proto  string // that the rule matches
	ports  [2]string
	ported bool // match tcp or udp has been written, of comparisons of ports
}

var (
	errText  = errors.New("a text that is none of one line")
	errTwice = errors.New("it is there twice")
)

func (r *saveRule) read(a *attributes) error {
	*r = saveRule{rule: rule{Decoder: r.Decoder}, parts: r.parts}
	for i := range r.parts {
		r.parts[i] = r.parts[i][:0]
	}
	err := r.decode(a[unix.NFTA_RULE_EXPRESSIONS], r.expression)
	r.flush()
	if text := comment(a[unix.NFTA_RULE_USERDATA]); err == nil && text != "" {
		return r.comment(text)
	}
	return err
}

func (r *saveRule) expression(name string, b []byte) error {
	if len(r.parts[target]) > 0 {
		return errors.New("it comes after the target")
	}
	switch name {
	case "counter":
		return nil
	case "payload":
		return r.load(name, b)
	case "meta":
		a, err := only(b, set(unix.NFTA_META_KEY, unix.NFTA_META_DREG), 0)
		if err != nil {
			return err
		}
		return r.meta(&a)
	case "bitwise":
		return r.bitwise(b)
	case "cmp":
		return r.compare(b)
	case "immediate":
		return r.verdict(b)
	case "match", "target":
		return r.extension(name, b)
	}
	return errors.New("not known")
}

// add adds to the matches.
func (r *saveRule) add(words ...string) {
	r.flush()
	for _, w := range words {
		r.parts[byMatches] = append(r.parts[byMatches], w...)
	}
}

// once writes a part that a rule has once.
func (r *saveRule) once(part int, words ...string) error {
	if len(r.parts[part]) > 0 {
		return errTwice
	}
	for _, w := range words {
		r.parts[part] = append(r.parts[part], w...)
	}
	return nil
}

// unless returns option, negated.
func unless(not bool, option string) string {
	if not {
		return " !" + option
	}
	return option
}

// compare reads a comparison.
func (r *saveRule) compare(b []byte) error {
	t, op, value, err := r.operands(b)
	if err != nil {
		return err
	}
	not := op == unix.NFT_CMP_NEQ
	if op != unix.NFT_CMP_EQ && !not || t.masked && !zero(t.xor) || len(value) != t.size && t.kind != ifname {
		return errForm
	}
	switch {
	case strings.HasSuffix(t.words, " saddr"):
		return r.address(bySource, unless(not, " -s "), t, value)
	case strings.HasSuffix(t.words, " daddr"):
		return r.address(byDestination, unless(not, " -d "), t, value)
	case t.kind == mark:
		mask := ^uint32(0)
		if t.masked {
			mask = binary.NativeEndian.Uint32(t.mask)
		}
		r.mark(not, binary.NativeEndian.Uint32(value), mask)
		return nil
	case t.masked:
	case t.kind == service:
		return r.port(strings.TrimPrefix(t.words, "th "), not, binary.BigEndian.Uint16(value))
	case t.kind == proto:
		return r.protocolOf(value[0], not)
	case t.words == "meta iifname":
		return r.link(byIn, unless(not, " -i "), value)
	case t.words == "meta oifname":
		return r.link(byOut, unless(not, " -o "), value)
	}
	return errForm
}

func (r *saveRule) address(part int, option string, t *term, value []byte) error {
	var address, mask [16]byte
	copy(address[:], value)
	for i := range t.size {
		mask[i] = 0xff
	}
	if t.masked {
		copy(mask[:], t.mask)
	}
	length := strconv.Itoa(ones(mask[:t.whole]))
	if length == "-1" {
		length = ip(mask[:t.whole])
	}
	return r.once(part, option, ip(address[:t.whole]), "/", length)
}

func ip(b []byte) string {
	a, _ := netip.AddrFromSlice(b)
	return a.String()
}

func (r *saveRule) link(part int, option string, value []byte) error {
	name, err := ifname.text(value)
	if err != nil {
		return err
	}
	if base, ok := strings.CutSuffix(name, "*"); ok {
		name = base + "+"
	}
	if !plain(name) || name == "INVAL/D" { // how iptables writes "! -i +"
		return errForm
	}
	return r.once(part, option, name)
}

// protocolOf reads a protocol, with the names that every iptables has of its own (libxtables/xtables.c).
func (r *saveRule) protocolOf(number byte, not bool) error {
	name := map[byte]string{unix.IPPROTO_TCP: "tcp", unix.IPPROTO_UDP: "udp", unix.IPPROTO_SCTP: "sctp", unix.IPPROTO_ICMP: "icmp",
		unix.IPPROTO_ICMPV6: "ipv6-icmp"}[number]
	if name == "" {
		return fmt.Errorf("protocol %d is not known", number)
	}
	if !not {
		r.proto = name
	}
	return r.once(byProtocol, unless(not, " -p "), name)
}

// port reads that a port is one. The comparisons of a rule make one match.
func (r *saveRule) port(which string, not bool, number uint16) error {
	i := map[string]int{"sport": 0, "dport": 1}[which]
	switch {
	case r.proto != "tcp" && r.proto != "udp":
		return errForm
	case r.ports[i] != "" || r.ported:
		return errTwice
	}
	r.ports[i] = unless(not, " --") + which + " " + strconv.Itoa(int(number))
	return nil
}

// flush writes the match that ports have made.
func (r *saveRule) flush() {
	if p := r.ports; !r.ported && p != [2]string{} {
		r.ported = true
		r.add(" -m ", r.proto, p[0], p[1])
	}
}

// verdict reads where the packet goes.
func (r *saveRule) verdict(b []byte) error {
	a, err := only(b, set(unix.NFTA_IMMEDIATE_DREG, unix.NFTA_IMMEDIATE_DATA), 0)
	if err != nil {
		return err
	}
	_, v, err := r.data(a[unix.NFTA_IMMEDIATE_DATA])
	switch {
	case err != nil:
		return err
	case a.number(unix.NFTA_IMMEDIATE_DREG) != unix.NFT_REG_VERDICT:
	case v.way == "jump" && plain(v.chain):
		return r.once(target, " -j ", v.chain)
	case v.way == "goto" && plain(v.chain):
		return r.once(target, " -g ", v.chain)
	case v.word == "accept" || v.word == "drop" || v.word == "return":
		return r.once(target, " -j ", strings.ToUpper(v.word))
	}
	return errForm
}

func (r *saveRule) mark(not bool, value, mask uint32) {
	r.add(" -m mark", unless(not, " --mark "), hex(value))
	if mask != ^uint32(0) {
		r.add("/", hex(mask))
	}
}

func hex(n uint32) string { return "0x" + strconv.FormatUint(uint64(n), 16) }

func (r *saveRule) comment(text string) error {
	if strings.ContainsFunc(text, func(c rune) bool { return c < ' ' }) {
		return errText
	}
	r.add(" -m comment --comment ", quoted(text))
	return nil
}

// quoted returns a text as iptables quotes it.
func quoted(text string) string {
	bare := func(c rune) bool {
		return c == '_' || c == '-' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
	}
	if text != "" && strings.TrimFunc(text, bare) == "" {
		return text
	}
	return `"` + strings.NewReplacer(`"`, `\"`, `\`, `\\`, `'`, `\'`).Replace(text) + `"`
}

// plain reports whether a name is one word for iptables.
func plain(name string) bool {
	return name != "" && name[0] != '-' && !strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c > '~' || c == '"' })
}
