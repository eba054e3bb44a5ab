package path

import (
	"slices"
	"strconv"
	"strings"

	"nodegate/internal/ruleset"
)

// addNFT adds the base chains of a table of nftables. Of two chains with the same priority the one
// that was added last comes first (nf_hook_entries_grow).
func (all *Rules) addNFT(source string, t *ruleset.NFTTable, family string) {
	ready := &table{source: source, program: "nft", name: t.Name, shown: t.Family + " " + t.Name, chains: map[string]*chain{}}
	reader := &nftReader{t: t, family: family}
	ready.find = func(name string) *chain {
		c := t.Chain(name)
		if c == nil {
			return nil
		}
		return &chain{ready, name, c.Line, make([]*rule, len(c.Rules)), func(i int) *rule { return reader.rule(c.Rules[i]) }}
	}
	for _, c := range slices.Backward(t.Chains) {
		if hook := strings.ToUpper(c.Hook); c.Hook != "" && !all.addLinkChain(c, ready.chain(c.Name), t.Family) {
			nat := c.Type == "nat" || c.Type == "" && strings.HasPrefix(c.Name, "nat-")
			priority := c.Priority
			if nat {
				priority = natPriority(hook)
			}
			all.hooks[hook] = append(all.hooks[hook], base{ready.chain(c.Name), hook, priority, c.Priority, nat, c.Policy == "drop", nil})
		}
	}
}

// nftReader reads rules from their text in nft's syntax.
type nftReader struct {
	t      *ruleset.NFTTable
	family string
	out    *rule
	words  []string
}

func (r *nftReader) next() string {
	if len(r.words) == 0 {
		return ""
	}
	w := r.words[0]
	r.words = r.words[1:]
	return w
}

func (r *nftReader) peek() string {
	if len(r.words) == 0 {
		return ""
	}
	return r.words[0]
}

func (r *nftReader) rule(from *ruleset.NFTRule) *rule {
	r.out = &rule{text: from.Text, line: from.Line, handle: from.Handle, chance: 1}
	if r.words = strings.Fields(from.Text); len(r.words) == 0 {
		r.unknown("an unreadable rule")
	}
	if strings.HasSuffix(from.Text, "...") && from.Modulus == 0 { // the end, with the verdict, was cut off
		r.unknown("a long rule")
		r.act(action{kind: handedOver, text: "a long rule"})
		return r.out
	}
	for len(r.words) > 0 {
		r.statement(from)
	}
	return r.out
}

func (r *nftReader) unknown(text string) { r.out.matches = append(r.out.matches, match{text: text}) }

func (r *nftReader) act(a action) { r.out.actions = append(r.out.actions, a) }

// statement reads one statement of a rule.
func (r *nftReader) statement(from *ruleset.NFTRule) {
	switch w := r.next(); w {
	case "accept":
		r.act(action{kind: accept, text: w})
	case "drop":
		r.act(action{kind: drop, text: w})
	case "reject":
		r.act(action{kind: reject, text: w})
	case "return":
		r.act(action{kind: back, text: w})
	case "notrack":
		r.act(action{kind: untrack, text: w})
	case "queue":
		r.queue()
	case "fwd", "synproxy":
		r.act(action{kind: handedOver, text: w})
	case "jump", "goto":
		k := jump
		if w == "goto" {
			k = branch
		}
		chain := r.next()
		r.act(action{kind: k, text: w + " " + chain, chain: chain})
	case "masquerade":
		r.act(action{kind: fromOther, text: w})
		r.words = nil
	case "redirect":
		a := action{kind: toOther, text: w, own: true}
		if r.peek() == "to" {
			r.next()
			_, a.port = parseDestination(r.next())
		}
		r.act(a)
		r.words = nil
	case "dnat", "snat":
		r.translate(w, map[string]kind{"dnat": toOther, "snat": fromOther}[w], from)
	case "counter", "log", "continue", "flow", "fully-random", "random":
	case "update", "add":
		for len(r.words) > 0 && r.peek() != "}" {
			switch one := r.next(); one {
			case "limit", "quota", "ct", "connlimit":
				r.unknown(w + " with " + one)
			case "ip", "ip6":
				r.only(one)
			}
		}
		r.next()
	case "ip", "ip6", "meta", "ct", "tcp", "udp", "sctp", "th", "fib", "numgen", "icmp", "icmpv6", "ether", "vlan", "dccp", "udplite", "ah",
		"esp", "arp", "rt", "exthdr", "jhash", "symhash", "ipsec":
		if w == "ct" && strings.HasPrefix(strings.Join(r.words, " "), "count over 0") { // a connection counts itself
			r.words = r.words[3:]
			return
		}
		if w == "ct" && slices.Contains([]string{"count", "helper", "timeout", "expectation"}, r.peek()) {
			kind := r.next()
			if r.unknown(w + " " + kind); kind == "count" {
				for r.next(); len(r.words) > 0 && strings.Trim(r.peek(), "0123456789") == ""; {
					r.next()
				}
			}
			return
		}
		r.match(w, from)
	case "xt":
		if r.unknown("a match of iptables"); len(r.words) == 0 { // or its target
			r.act(action{kind: handedOver, text: w})
		}
	default: // a rate limit, a quota
		r.unknown(w)
	}
}

// queue reads "queue num 7 bypass".
func (r *nftReader) queue() {
	a := action{kind: handedOver, text: "queue"}
	for _, w := range r.words {
		switch number, err := strconv.ParseUint(w, 10, 16); {
		case err == nil:
			a.kind, a.port = queue, uint16(number)
		case strings.Contains(w, "bypass"):
			a.bypass = true
		}
	}
	r.words = nil
	r.act(a)
}

// selector is the left side of a match.
type selector struct {
	words  string
	mask   uint32
	masked bool
}

// match reads a match, a map of verdicts, or a statement that sets a mark.
func (r *nftReader) match(first string, from *ruleset.NFTRule) {
	if first == "tcp" && r.peek() == "flags" && !slices.Contains([]string{"vmap", ".", "set", "{"}, r.words[min(1, len(r.words)-1)]) {
		r.flags()
		return
	}
	parts := r.selectors(first)
	if r.peek() == "set" {
		r.next()
		r.setMark(parts[0].words)
		return
	}
	if r.peek() == "vmap" {
		r.next()
		r.verdicts(parts, from)
		return
	}
	op := "=="
	if slices.Contains([]string{"!=", "<", ">", "<=", ">=", "==", "!"}, r.peek()) {
		op = r.next()
	}
	list, known := r.values()
	text := parts[0].words + " " + op + " " + strings.Join(list, ", ")
	if strings.HasPrefix(parts[0].words, "numgen ") {
		r.random(parts[0].words, op, list)
		return
	}
	if parts[0].words == "ip ttl" && (op == "<" || op == ">") {
		list, op = []string{op + list[0]}, "=="
	}
	if op == "!" && parts[0].words != "ct state" && parts[0].words != "ct status" {
		known = false
	}
	if !known || op != "==" && op != "!=" && op != "!" {
		r.unknown(text)
		return
	}
	test := r.compare(parts, list)
	switch {
	case test == nil:
		r.unknown(text)
	case op != "==":
		r.out.matches = append(r.out.matches, match{text, refuse(parts, test)})
	default:
		r.out.matches = append(r.out.matches, match{text, test})
	}
}

// selector reads "ip saddr", "fib daddr type", "numgen random mod 3", "meta mark & 16384".
func (r *nftReader) selector(first string) selector {
	more := 1
	switch first {
	case "fib":
		more = 2
	case "numgen":
		more = 3
	case "ct":
		if r.peek() == "original" {
			more = 3
		}
	}
	s := selector{words: first}
	for range more {
		s.words += " " + r.next()
	}
	if r.peek() == "&" {
		r.next()
		mask, err := strconv.ParseUint(r.next(), 0, 32)
		if err != nil {
			s.words += " & ?"
		}
		s.mask, s.masked = uint32(mask), true
	}
	return s
}

// random reads a match of numgen.
func (r *nftReader) random(left, op string, list []string) {
	f := strings.Fields(left)
	modulus, err := strconv.ParseFloat(f[len(f)-1], 64)
	value, failed := strconv.ParseFloat(list[0], 64)
	if err != nil || failed != nil || modulus < 1 {
		r.unknown(left)
		return
	}
	switch op {
	case "==":
		r.out.chance = float64(len(list)) / modulus
	case "!=":
		r.out.chance = 1 - float64(len(list))/modulus
	case "<":
		r.out.chance = value / modulus
	case ">=":
		r.out.chance = 1 - value/modulus
	default:
		r.unknown(left)
	}
}

// setMark reads the value of "meta mark set" and "ct mark set".
func (r *nftReader) setMark(key string) {
	value := strings.Join(r.words, " ")
	k := map[string]kind{"meta mark": mark, "ct mark": markConn, "ct zone": zone}[key]
	switch from, rest, _ := strings.Cut(value, " mark"); {
	case k == next: // another field, such as the priority
		if strings.HasSuffix(key, "addr") || strings.HasSuffix(key, "port") {
			r.act(action{kind: handedOver, text: key + " set"})
		}
		for r.next(); slices.Contains([]string{"|", "&", "^"}, r.peek()); {
			r.words = r.words[2:]
		}
		return
	case from != "meta" && from != "ct":
		number, err := strconv.ParseUint(r.next(), 0, 32)
		a := action{kind: k, text: strings.ReplaceAll(key, "ct zone", "CT zone") + " set", value: uint32(number), mask: 0xffffffff}
		if err != nil {
			a = action{kind: handedOver, text: key}
		}
		r.act(a)
		return
	case from == "ct" && k == mark:
		r.act(action{kind: loadMark, text: key + " set", value: 0xffffffff, mask: 0xffffffff})
		r.words = strings.Fields(rest)
	case from == "meta" && k == markConn:
		r.act(action{kind: saveMark, text: key + " set", value: 0xffffffff, mask: 0xffffffff})
		r.words = strings.Fields(rest)
	default:
		r.words = strings.Fields(rest)
	}
	for slices.Contains([]string{"|", "&", "^"}, r.peek()) {
		op := r.next()
		number, err := strconv.ParseUint(r.next(), 0, 32)
		if err != nil {
			r.act(action{kind: handedOver, text: key})
			return
		}
		bits := uint32(number)
		a := action{kind: k, text: key + " set", value: bits}
		switch op {
		case "|":
			a.mask = bits
		case "&":
			a.value, a.mask = 0, ^bits
		}
		r.act(a)
	}
}

// verdicts reads a map of verdicts.
func (r *nftReader) verdicts(parts []selector, from *ruleset.NFTRule) {
	a := action{kind: spread, text: "vmap"}
	if strings.HasPrefix(parts[0].words, "numgen ") {
		for _, e := range from.Entries {
			one := action{kind: branch, text: "goto " + e.Target, chain: e.Target}
			a.choices = append(a.choices, choice{one, 1 / float64(max(from.Modulus, 1))})
		}
		r.words = nil
		r.act(a)
		return
	}
	var elements []ruleset.NFTElement
	if name, is := strings.CutPrefix(r.peek(), "@"); is {
		r.next()
		set := r.t.Sets[name]
		if set == nil {
			r.unknown("@" + name)
			return
		}
		elements = set.Elements
		a.text += " @" + name
	} else {
		list, known := r.values()
		if !known {
			r.unknown("a map of verdicts")
			return
		}
		for _, one := range list {
			key, verdict, _ := strings.Cut(one, " : ")
			target := ""
			if how, chain, leads := strings.Cut(verdict, " "); leads {
				verdict, target = how, chain
			}
			elements = append(elements, ruleset.NFTElement{Key: []string{key}, Verdict: verdict, Target: target})
		}
	}
	a.choose = r.chooser(parts, elements)
	r.act(a)
}

// chooser returns the entries of a map that a packet may select.
func (r *nftReader) chooser(parts []selector, elements []ruleset.NFTElement) func(*Node, *Packet) ([]action, Answer) {
	tests := make([]func(*Node, *Packet) Answer, len(elements)) // made when first needed
	return func(n *Node, p *Packet) (list []action, found Answer) {
		found = No
		for i := range elements {
			if tests[i] == nil {
				if tests[i] = r.compare(parts, []string{elements[i].String()}); tests[i] == nil {
					tests[i] = func(*Node, *Packet) Answer { return Unknown }
				}
			}
			switch tests[i](n, p) {
			case Yes:
				return []action{entry(&elements[i])}, Yes
			case Unknown:
				found = Unknown
				list = append(list, entry(&elements[i]))
			}
		}
		return list, found
	}
}

func entry(e *ruleset.NFTElement) action {
	switch e.Verdict {
	case "accept":
		return action{kind: accept, text: "accept"}
	case "drop":
		return action{kind: drop, text: "drop"}
	case "return":
		return action{kind: back, text: "return"}
	case "continue":
		return action{kind: next}
	case "jump":
		return action{kind: jump, text: "jump " + e.Target, chain: e.Target}
	}
	return action{kind: branch, text: "goto " + e.Target, chain: e.Target}
}
