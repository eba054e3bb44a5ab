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
	proto  string // protocol that the rule matches
	ports  [2]string
	ported bool // the tcp or udp match of the port comparisons has been written
}

var (
	errText  = errors.New("a string that does not print as one line")
	errTwice = errors.New("it occurs twice")
)

func (r *saveRule) readRule(a *attributes) error {
	*r = saveRule{rule: rule{Decoder: r.Decoder}, parts: r.parts}
	for i := range r.parts {
		r.parts[i] = r.parts[i][:0]
	}
	err := r.decode(a[unix.NFTA_RULE_EXPRESSIONS], r.readExpression)
	r.flushPorts()
	if text := comment(a[unix.NFTA_RULE_USERDATA]); err == nil && text != "" {
		return r.addComment(text)
	}
	return err
}

func (r *saveRule) readExpression(name string, b []byte) error {
	if len(r.parts[target]) > 0 {
		return errors.New("it follows the target")
	}
	switch name {
	case "counter":
		return nil
	case "payload":
		return r.readLoad(name, b)
	case "meta":
		a, err := readAttributes(b, maskOf(unix.NFTA_META_KEY, unix.NFTA_META_DREG), 0)
		if err != nil {
			return err
		}
		return r.readMeta(&a)
	case "bitwise":
		return r.readBitwise(b)
	case "cmp":
		return r.readComparison(b)
	case "immediate":
		return r.readVerdict(b)
	case "match", "target":
		return r.readExtension(name, b)
	}
	return errors.New("unsupported expression")
}

// addMatch appends to the matches.
func (r *saveRule) addMatch(words ...string) {
	r.flushPorts()
	for _, w := range words {
		r.parts[byMatches] = append(r.parts[byMatches], w...)
	}
}

// setPart sets a part that a rule may have only once.
func (r *saveRule) setPart(part int, words ...string) error {
	if len(r.parts[part]) > 0 {
		return errTwice
	}
	for _, w := range words {
		r.parts[part] = append(r.parts[part], w...)
	}
	return nil
}

// negateIf returns option, negated if not is set.
func negateIf(not bool, option string) string {
	if not {
		return " !" + option
	}
	return option
}

// readComparison reads a comparison.
func (r *saveRule) readComparison(b []byte) error {
	t, op, value, err := r.readOperands(b)
	if err != nil {
		return err
	}
	not := op == unix.NFT_CMP_NEQ
	if op != unix.NFT_CMP_EQ && !not || t.masked && !isZero(t.xor) || len(value) != t.size && t.kind != ifname {
		return errForm
	}
	switch {
	case strings.HasSuffix(t.words, " saddr"):
		return r.setAddress(bySource, negateIf(not, " -s "), t, value)
	case strings.HasSuffix(t.words, " daddr"):
		return r.setAddress(byDestination, negateIf(not, " -d "), t, value)
	case t.kind == mark:
		mask := ^uint32(0)
		if t.masked {
			mask = binary.NativeEndian.Uint32(t.mask)
		}
		r.addMark(not, binary.NativeEndian.Uint32(value), mask)
		return nil
	case t.masked:
	case t.kind == service:
		return r.addPort(strings.TrimPrefix(t.words, "th "), not, binary.BigEndian.Uint16(value))
	case t.kind == proto:
		return r.setProtocol(value[0], not)
	case t.words == "meta iifname":
		return r.setLink(byIn, negateIf(not, " -i "), value)
	case t.words == "meta oifname":
		return r.setLink(byOut, negateIf(not, " -o "), value)
	}
	return errForm
}

func (r *saveRule) setAddress(part int, option string, t *term, value []byte) error {
	var address, mask [16]byte
	copy(address[:], value)
	for i := range t.size {
		mask[i] = 0xff
	}
	if t.masked {
		copy(mask[:], t.mask)
	}
	length := strconv.Itoa(leadingOnes(mask[:t.whole]))
	if length == "-1" {
		length = ip(mask[:t.whole])
	}
	return r.setPart(part, option, ip(address[:t.whole]), "/", length)
}

func ip(b []byte) string {
	a, _ := netip.AddrFromSlice(b)
	return a.String()
}

func (r *saveRule) setLink(part int, option string, value []byte) error {
	name, err := ifname.text(value)
	if err != nil {
		return err
	}
	if base, ok := strings.CutSuffix(name, "*"); ok {
		name = base + "+"
	}
	if !isPlain(name) || name == "INVAL/D" { // iptables writes "! -i +" in this way
		return errForm
	}
	return r.setPart(part, option, name)
}

// setProtocol reads a protocol and uses the names that every iptables has built in
// (libxtables/xtables.c).
func (r *saveRule) setProtocol(number byte, not bool) error {
	name := map[byte]string{unix.IPPROTO_TCP: "tcp", unix.IPPROTO_UDP: "udp", unix.IPPROTO_SCTP: "sctp", unix.IPPROTO_ICMP: "icmp",
		unix.IPPROTO_ICMPV6: "ipv6-icmp"}[number]
	if name == "" {
		return fmt.Errorf("unknown protocol %d", number)
	}
	if !not {
		r.proto = name
	}
	return r.setPart(byProtocol, negateIf(not, " -p "), name)
}

// addPort reads a comparison of one port. All port comparisons of a rule form one match.
func (r *saveRule) addPort(which string, not bool, number uint16) error {
	i := map[string]int{"sport": 0, "dport": 1}[which]
	switch {
	case r.proto != "tcp" && r.proto != "udp":
		return errForm
	case r.ports[i] != "" || r.ported:
		return errTwice
	}
	r.ports[i] = negateIf(not, " --") + which + " " + strconv.Itoa(int(number))
	return nil
}

// flushPorts writes the match that the port comparisons form.
func (r *saveRule) flushPorts() {
	if p := r.ports; !r.ported && p != [2]string{} {
		r.ported = true
		r.addMatch(" -m ", r.proto, p[0], p[1])
	}
}

// readVerdict reads the verdict of the rule.
func (r *saveRule) readVerdict(b []byte) error {
	a, err := readAttributes(b, maskOf(unix.NFTA_IMMEDIATE_DREG, unix.NFTA_IMMEDIATE_DATA), 0)
	if err != nil {
		return err
	}
	_, v, err := r.readData(a[unix.NFTA_IMMEDIATE_DATA])
	switch {
	case err != nil:
		return err
	case a.number(unix.NFTA_IMMEDIATE_DREG) != unix.NFT_REG_VERDICT:
	case v.way == "jump" && isPlain(v.chain):
		return r.setPart(target, " -j ", v.chain)
	case v.way == "goto" && isPlain(v.chain):
		return r.setPart(target, " -g ", v.chain)
	case v.word == "accept" || v.word == "drop" || v.word == "return":
		return r.setPart(target, " -j ", strings.ToUpper(v.word))
	}
	return errForm
}

func (r *saveRule) addMark(not bool, value, mask uint32) {
	r.addMatch(" -m mark", negateIf(not, " --mark "), hex(value))
	if mask != ^uint32(0) {
		r.addMatch("/", hex(mask))
	}
}

func hex(n uint32) string { return "0x" + strconv.FormatUint(uint64(n), 16) }

func (r *saveRule) addComment(text string) error {
	if strings.ContainsFunc(text, func(c rune) bool { return c < ' ' }) {
		return errText
	}
	r.addMatch(" -m comment --comment ", quoted(text))
	return nil
}

// quoted quotes a string as iptables does.
func quoted(text string) string {
	bare := func(c rune) bool {
		return c == '_' || c == '-' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
	}
	if text != "" && strings.TrimFunc(text, bare) == "" {
		return text
	}
	return `"` + strings.NewReplacer(`"`, `\"`, `\`, `\\`, `'`, `\'`).Replace(text) + `"`
}

// isPlain reports whether iptables reads a name as one word.
func isPlain(name string) bool {
	return name != "" && name[0] != '-' && !strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c > '~' || c == '"' })
}
