package ruleset

import (
	"encoding/json"
	"net"
	"strconv"
	"strings"
)

// NFTRule describes the matches and actions that kube-proxy's rules use. Other is set if the rule
// contains anything else.
type NFTRule struct {
	Handle, Line int
	Text         string // in nft's syntax

	Source, Destination string
	Sources             []string // the elements of Source if it is an anonymous set: "10.0.0.0/8", "range 10.0.0.1, 10.0.0.5"
	In                  string
	Protocol            string
	Target              string // chain of a jump or goto
	Verdict             string // drop, reject, return, accept
	To                  string // dnat destination, ip:port
	Lookup              string // map of a vmap @name
	Update              string // set to which the rule adds the client
	Entries             []NFTEntry
	Modulus             int // of numgen

	MarkTest   uint32 // meta mark & x
	MarkSet    uint32 // meta mark set meta mark | x
	MarkToggle uint32 // ... ^ x

	NotSource   bool // Source or In is negated
	FromLocal   bool // fib saddr type local
	State       bool // ct state
	Other       bool // any other condition
	MarkUnset   bool // MarkTest ... == 0
	Masquerade  bool
	FullyRandom bool
	Random      bool // numgen random, not inc
}

// NFTEntry is one choice of numgen.
type NFTEntry struct {
	Key    int
	Target string // chain, or from 1.36 ip:port
}

// Always reports whether the rule matches every packet.
func (r *NFTRule) Always() bool {
	return r.Source == "" && r.Destination == "" && r.In == "" && r.Protocol == "" && !r.FromLocal && !r.State && !r.Other &&
		r.MarkTest == 0
}

// decode reads the statements of a rule and sets its text in nft's syntax.
func (r *NFTRule) decode(statements []any) {
	words := make([]string, 0, len(statements))
	for _, s := range statements {
		m, _ := s.(map[string]any)
		for name, arg := range m {
			if name == "counter" {
				continue
			}
			words = append(words, r.addStatement(name, arg))
		}
	}
	r.Text = RuleText(strings.Join(words, " "))
}

// RuleText shortens a rule to the length that a finding prints.
func RuleText(words string) string {
	if len(words) > 300 {
		return words[:300] + "..."
	}
	return words
}

func (r *NFTRule) addStatement(name string, arg any) string {
	switch name {
	case "match":
		left, _ := member(arg, "left")
		right, _ := member(arg, "right")
		op, _ := member(arg, "op")
		if set, _ := member(right, "set"); strings.HasSuffix(nftText(left), " saddr") {
			list, _ := set.([]any)
			for _, e := range list {
				r.Sources = append(r.Sources, nftText(e))
			}
		}
		return r.Match(nftText(left), nftText(op), nftText(right))
	case "jump", "goto":
		t, _ := member(arg, "target")
		r.Target = nftText(t)
		return name + " " + r.Target
	case "drop", "accept", "return", "reject":
		r.Verdict = name
		return name
	case "masquerade":
		flags, _ := member(arg, "flags")
		r.Masquerade = true
		r.FullyRandom = strings.Contains(nftText(flags), "fully-random")
		return strings.TrimSpace("masquerade " + nftText(flags))
	case "mangle":
		key, _ := member(arg, "key")
		value, _ := member(arg, "value")
		return r.Mangle(nftText(key), nftText(value))
	case "vmap":
		key, _ := member(arg, "key")
		data, _ := member(arg, "data")
		r.parseDispatch(key, data)
		if s, ok := data.(string); ok {
			r.Lookup = strings.TrimPrefix(s, "@")
		}
		return nftText(key) + " vmap " + nftText(data)
	case "dnat":
		return r.parseDNAT(arg)
	case "snat":
		r.Other = true
		return natText(name, arg)
	case "set":
		set, _ := member(arg, "set")
		elem, _ := member(arg, "elem")
		r.Update = strings.TrimPrefix(nftText(set), "@")
		text := nftText(elem)
		for _, name := range statementNames(arg) {
			text += " " + name
		}
		return "update " + nftText(set) + " { " + text + " }"
	}
	r.Other = true
	if port, is := member(arg, "port"); is && name == "redirect" {
		return "redirect to :" + nftText(port)
	}
	return name
}

// statementNames returns the names of the statements that a rule attaches to an element: "limit".
func statementNames(update any) (names []string) {
	attached, _ := member(update, "stmt")
	list, _ := attached.([]any)
	for _, one := range list {
		m, _ := one.(map[string]any)
		for name := range m {
			names = append(names, name)
		}
	}
	return names
}

// Match adds a match in nft's syntax, for example {"ip saddr", "!=", "10.0.0.0/8"}, and returns its
// text.
func (r *NFTRule) Match(l, o, rt string) string {
	not := o == "!="
	if l == "meta mark" && rt == "0/1" {
		l, rt = "meta mark & 2147483648", "0" // nft prints a test of the first bit as a prefix
	}
	switch l {
	case "ip saddr", "ip6 saddr":
		r.Source, r.NotSource = rt, not
	case "ip daddr", "ip6 daddr":
		r.Destination = rt
		r.Other = r.Other || not
	case "meta l4proto":
		r.Protocol = protocolName(rt)
		r.Other = r.Other || not
	case "fib saddr type":
		r.FromLocal = (rt == "local" || rt == "2") && !not // RTN_LOCAL
		r.Other = r.Other || !r.FromLocal
	case "ct state":
		r.State = true
	case "meta iifname", "meta iif": // used until 1.34: kubernetes#134024
		r.In, r.NotSource = rt, not
	default:
		mask, ok := strings.CutPrefix(l, "meta mark & ")
		bits, err := strconv.ParseUint(mask, 0, 32)
		if !ok || err != nil || rt != "0" && rt != "0x0" {
			r.Other = true
			break
		}
		r.MarkTest, r.MarkUnset = uint32(bits), !not
	}
	if o == "in" || o == "==" && !strings.HasPrefix(l, "tcp flags") { // "tcp flags syn" is one of several
		return l + " " + rt
	}
	return l + " " + o + " " + rt
}

// Mangle records that the rule sets k ("meta mark") to v ("meta mark | 16384"), and returns the
// statement's text.
func (r *NFTRule) Mangle(k, v string) string {
	if k == "meta mark" {
		if bits, ok := strings.CutPrefix(v, "meta mark | "); ok {
			r.MarkSet = mark(bits)
		}
		if bits, ok := strings.CutPrefix(v, "meta mark ^ "); ok {
			r.MarkToggle = mark(bits)
		}
	}
	return k + " set " + v
}

// mark parses a mark. It returns 0, which marks nothing, if bits is not a valid mark.
func mark(bits string) uint32 {
	n, err := strconv.ParseUint(bits, 0, 32)
	if err != nil {
		return 0
	}
	return uint32(n)
}

// parseDNAT reads a dnat statement: to one address or, from 1.36, to a random address of a map.
func (r *NFTRule) parseDNAT(arg any) string {
	addr, _ := member(arg, "addr")
	if m, ok := member(addr, "map"); ok {
		key, _ := member(m, "key")
		data, _ := member(m, "data")
		r.parseDispatch(key, data)
		return natText("dnat", arg)
	}
	port, _ := member(arg, "port")
	r.To = net.JoinHostPort(nftText(addr), portNumber(nftText(port)))
	return "dnat to " + r.To
}

// natText returns a statement with its address: "snat to 10.0.0.1", or with the map that has it.
func natText(name string, arg any) string {
	addr, known := member(arg, "addr")
	if m, ok := member(addr, "map"); ok {
		key, _ := member(m, "key")
		data, _ := member(m, "data")
		return name + " to " + nftText(key) + " map " + nftText(data)
	}
	if !known {
		return name
	}
	return name + " to " + nftText(addr)
}

// parseDispatch reads numgen's modulus and the entries from which it chooses.
func (r *NFTRule) parseDispatch(key, data any) {
	gen, ok := member(key, "numgen")
	if !ok {
		return
	}
	mod, _ := member(gen, "mod")
	mode, _ := member(gen, "mode")
	r.Random = nftText(mode) == "random"
	r.Modulus = number(mod)
	set, _ := member(data, "set")
	list, _ := set.([]any)
	for _, e := range list {
		pair, _ := e.([]any)
		if len(pair) != 2 {
			continue
		}
		entry := NFTEntry{Key: number(pair[0])}
		if parts, ok := member(pair[1], "concat"); ok {
			if p, _ := parts.([]any); len(p) == 2 {
				entry.Target = net.JoinHostPort(nftText(p[0]), portNumber(nftText(p[1])))
			}
		} else {
			entry.Target, _ = decodeVerdict(pair[1])
		}
		r.Entries = append(r.Entries, entry)
	}
}

// number returns v as an integer, or -1 if it is not a whole number.
func number(v any) int {
	n, ok := v.(json.Number)
	if !ok {
		return -1
	}
	i, err := strconv.Atoi(n.String())
	if err != nil {
		return -1
	}
	return i
}
