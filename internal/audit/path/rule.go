package path

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"nodegate/internal/ruleset"
)

type kind int8

// The effects of a rule on a packet.
const (
	next       kind = iota // none
	accept                 // ends the base chain
	drop                   // ends the packet's way
	reject                 // the same, and reports it to the sender
	back                   // returns to the calling chain, or to the policy
	jump                   // walks another chain first
	branch                 // goes to another chain and does not come back
	toOther                // changes the destination
	fromOther              // changes the source
	mark                   // changes the mark
	saveMark               // copies the mark to the connection
	loadMark               // copies the connection's mark to the packet
	markConn               // changes the connection's mark
	untrack                // excludes the packet from conntrack, and so from NAT
	zone                   // of conntrack
	divert                 // TPROXY: to a process of this node, at a port
	queue                  // NFQUEUE: to a program, which may do anything
	handedOver             // to a program that may do anything
	spread                 // goes to one of several chains or destinations
)

type action struct {
	kind
	text        string
	chain       string // of jump and branch
	to          netip.Prefix
	port        uint16 // 0 keeps the port
	own         bool   // REDIRECT: the new destination is this node
	bypass      bool   // of a queue: without a program that listens, packets pass
	value, mask uint32
	choices     []choice
	choose      func(*Node, *Packet) ([]action, Answer) // a map of verdicts: the entry, or those that may match
}

// choice is one way of a rule with several.
type choice struct {
	action
	chance float64
}

// rule is a rule made ready for walking.
type rule struct {
	text    string
	line    int
	handle  int
	matches []match
	chance  float64 // of a random match; 1 without
	actions []action
}

// The matches of iptables that do not restrict the packets, or whose options readMatch knows.
func isKnownModule(name string) bool {
	return slices.Contains([]string{"comment", "tcp", "udp", "sctp", "udplite", "dccp", "conntrack", "state", "addrtype", "statistic", "mark",
		"connmark", "nfacct", "multiport", "iprange", "length", "ttl", "hl", "icmp", "icmp6"}, name)
}

// ofModule returns the options of a match: the words up to the next match or the target.
func (o *options) ofModule() []string {
	began := o.at
	for o.at < len(o.words) && !slices.Contains([]string{"-m", "-j", "-g", "--match", "--jump", "--goto"}, o.words[o.at]) {
		o.at++
	}
	return o.words[began:o.at]
}

// readRule makes a rule of iptables ready for walking.
func (all *Rules) readRule(r *ruleset.Rule) *rule {
	out := &rule{text: r.Text, line: int(r.Line), chance: 1}
	o := &options{words: ruleset.Words(r.Text), at: 2} // -A CHAIN
	module := ""
	for o.at < len(o.words) {
		w := o.next()
		if w == "!" {
			o.not = true
			continue
		}
		switch {
		case w == "-m" || w == "--match":
			if module = o.next(); !isKnownModule(module) {
				args := o.ofModule()
				one := match{strings.Join(append([]string{"-m", module}, args...), " "), all.readModule(module, args)}
				if out.matches = append(out.matches, one); module == "set" && slices.ContainsFunc(args, all.isPartial) {
					out.matches = append(out.matches, match{text: one.text})
				}
			}
		case w == "-j" || w == "-g" || w == "--jump" || w == "--goto":
			out.actions = []action{readTarget(o.next(), w == "-g" || w == "--goto", o, r.Jump != 0)}
			return out
		case w == "--comment" || w == "--nfacct-name":
			o.next()
		case module == "statistic" && w == "--mode":
			o.next()
		case module == "statistic" && (w == "--probability" || w == "--every"):
			out.readChance(w, o)
		case module == "statistic" && w == "--packet":
			o.next()
		case w == "-f" || w == "--fragment":
			out.add("-f", o, func(*Node, *Packet) Answer { return No }) // conntrack reassembles fragments
		case len(w) == 2 || module == "" || isKnownModule(module):
			out.readOption(w, module, o)
		}
		o.not = false
	}
	out.actions = []action{{kind: next}}
	return out
}

// readOption reads an option that is a condition.
func (r *rule) readOption(w, module string, o *options) {
	began := o.at - 1
	if w == "--mark" {
		value, mask, ok := parseMark(o.next())
		test := func(_ *Node, p *Packet) Answer { return p.Mark.matches(value, mask) }
		if module == "connmark" {
			not := o.not
			test = func(_ *Node, p *Packet) Answer {
				if !p.tracked() {
					return answer(not) // no, inverted or not
				}
				return p.ConnMark.matches(value, mask)
			}
		}
		if !ok {
			test = nil
		}
		r.add(strings.Join(o.words[began:o.at], " "), o, test)
		return
	}
	test, known := readMatch(w, o)
	if known || strings.HasPrefix(w, "-") {
		r.add(strings.Join(o.words[began:o.at], " "), o, test)
	}
}

func (r *rule) add(text string, o *options, test func(*Node, *Packet) Answer) {
	if o.not {
		text = "! " + text
		if positive := test; positive != nil {
			test = func(n *Node, p *Packet) Answer { return positive(n, p).not() }
		}
	}
	r.matches = append(r.matches, match{text, test})
}

// readChance reads statistic: random, or every nth packet.
func (r *rule) readChance(w string, o *options) {
	value, err := strconv.ParseFloat(o.next(), 64)
	switch {
	case err != nil || value < 0:
		r.matches = append(r.matches, match{text: "-m statistic"})
		return
	case w == "--every" && value >= 1:
		value = 1 / value
	}
	if o.not {
		value = 1 - value
	}
	r.chance = min(max(value, 0), 1)
}

// parseMark reads "0x4000/0x4000" or "0x1".
func parseMark(text string) (value, mask uint32, ok bool) {
	v, m, masked := strings.Cut(text, "/")
	if !masked {
		m = "0xffffffff"
	}
	number, err := strconv.ParseUint(v, 0, 32)
	bits, failed := strconv.ParseUint(m, 0, 32)
	return uint32(number), uint32(bits), err == nil && failed == nil
}

// readTarget reads a target with its options, which end the rule.
func readTarget(name string, goes bool, o *options, isChain bool) action {
	a := action{text: name}
	options := map[string]string{}
	for o.at < len(o.words) {
		w := o.next()
		value := ""
		if o.at < len(o.words) && !strings.HasPrefix(o.words[o.at], "--") {
			value = o.next()
		}
		options[w] = value
	}
	switch {
	case isChain:
		a.kind, a.chain = jump, name
		if goes {
			a.kind = branch
		}
	case name == "ACCEPT":
		a.kind = accept
	case name == "DROP":
		a.kind = drop
	case name == "REJECT":
		a.kind = reject
	case name == "RETURN":
		a.kind = back
	case name == "NOTRACK":
		a.kind = untrack
	case name == "CT":
		if _, is := options["--notrack"]; is {
			a.kind = untrack
		} else if n, err := strconv.ParseUint(options["--zone"], 0, 16); err == nil {
			a.kind, a.value, a.text = zone, uint32(n), InZone+options["--zone"]
		}
	case name == "MARK":
		a.readMark(options, mark)
	case name == "CONNMARK":
		a.readConnMark(options)
	default:
		a.readTranslation(name, options)
	}
	return a
}

func (a *action) readMark(options map[string]string, k kind) {
	a.kind, a.value, a.mask = k, 0, 0xffffffff
	for w, text := range options {
		value, mask, ok := parseMark(text)
		switch w {
		case "--set-xmark":
			a.value, a.mask = value, mask
		case "--set-mark":
			a.value, a.mask = value, mask|value
		case "--or-mark":
			a.value, a.mask = value, value
		case "--and-mark":
			a.value, a.mask = 0, ^value
		case "--xor-mark":
			a.value, a.mask = value, 0
		default:
			continue
		}
		if !ok {
			a.kind = handedOver
		}
	}
}

func (a *action) readConnMark(options map[string]string) {
	bits := func(name string) uint32 {
		if _, mask, ok := parseMark("0/" + options[name]); ok {
			return mask
		}
		return 0xffffffff
	}
	_, restore := options["--restore-mark"]
	_, save := options["--save-mark"]
	switch {
	case restore:
		a.kind, a.value, a.mask = loadMark, bits("--ctmask"), bits("--nfmask")
	case save:
		a.kind, a.value, a.mask = saveMark, bits("--nfmask"), bits("--ctmask")
	default:
		a.readMark(options, markConn)
	}
}

// readTranslation reads the targets that change addresses, and all others.
func (a *action) readTranslation(name string, options map[string]string) {
	switch name {
	case "DNAT":
		a.kind = toOther
		a.to, a.port = parseDestination(options["--to-destination"])
	case "REDIRECT":
		a.kind, a.own = toOther, true
		if ports, ok := parsePorts(options["--to-ports"]); ok && ports[0].first == ports[0].last {
			a.port = ports[0].first
		}
	case "SNAT":
		a.kind = fromOther
		a.to, _ = parseDestination(options["--to-source"])
	case "MASQUERADE":
		a.kind = fromOther
	case "NETMAP": // its hook decides which address it changes
		a.kind = toOther
		a.to, _ = parsePrefix(options["--to"])
	case "TPROXY":
		a.kind = divert
		if port, err := strconv.ParseUint(options["--on-port"], 0, 16); err == nil {
			a.port = uint16(port)
		}
		if value, mask, ok := parseMark(options["--tproxy-mark"]); ok {
			a.value, a.mask = value, mask
		}
	case "NFQUEUE":
		a.kind = queue
		number, err := strconv.ParseUint(options["--queue-num"], 0, 16)
		if _, a.bypass = options["--queue-bypass"]; err != nil && options["--queue-num"] != "" || options["--queue-balance"] != "" {
			a.kind = handedOver
		}
		a.port = uint16(number)
	case "LOG", "NFLOG", "ULOG", "TRACE", "TCPMSS", "TOS", "DSCP", "CLASSIFY", "CHECKSUM", "SET", "SECMARK", "CONNSECMARK", "TTL", "HL",
		"IDLETIMER", "RATEEST", "TEE", "AUDIT", "TCPOPTSTRIP", "ECN", "LED", "":
		a.kind = next
	default:
		a.kind = handedOver
	}
}

// parseDestination reads 10.0.0.1:80, [fd00::1]:80 and 10.0.0.1. A range of addresses gives the zero prefix, a range of ports port 0.
func parseDestination(text string) (netip.Prefix, uint16) {
	if ap, err := netip.ParseAddrPort(text); err == nil {
		return Addr(ap.Addr()), ap.Port()
	}
	if a, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil {
		return Addr(a), 0
	}
	i := strings.LastIndexByte(text, ':')
	if i < 0 {
		return netip.Prefix{}, 0
	}
	port, _ := strconv.ParseUint(text[i+1:], 10, 16)
	if a, err := netip.ParseAddr(strings.Trim(text[:i], "[]")); err == nil {
		return Addr(a), uint16(port)
	}
	return netip.Prefix{}, uint16(port)
}

func lastOf(p netip.Prefix) netip.Addr { return ruleset.Last(p.Masked()) }
