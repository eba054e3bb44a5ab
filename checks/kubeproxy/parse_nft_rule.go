package kubeproxy

import (
	"encoding/json"
	"strconv"
	"strings"
)

// nftRule is a rule by what kube-proxy's rules do. What it does not know makes it conditional (other).
type nftRule struct {
	handle, line  int
	text, comment string

	saddr, daddr string
	notSaddr     bool
	iif          string
	proto        string
	fromLocal    bool // fib saddr type local
	state        bool // ct state
	other        bool

	markTest    uint64 // meta mark & x
	markUnset   bool   // ... == 0
	markSet     uint64 // meta mark set meta mark | x
	markToggle  uint64 // ... ^ x
	target      string // of jump or goto
	verdict     string // drop, reject, return, accept
	masquerade  bool
	fullyRandom bool
	dnat        string // ip:port
	random      bool   // dispatch by numgen
	mod         int
	entries     []nftEntry
	lookup      string // vmap @name
	update      string // set that the rule adds the client to
}

type nftEntry struct {
	key    int
	target string // chain, or ip:port from 1.36
}

// always reports that every packet matches.
func (r *nftRule) always() bool {
	return r.saddr == "" && r.daddr == "" && r.iif == "" && r.proto == "" && !r.fromLocal && !r.state && !r.other && r.markTest == 0
}

// marks reports that the rule marks packets for masquerading: by a jump until 1.35, by itself from 1.36.
func (r *nftRule) marks() bool { return r.target == "mark-for-masquerade" || r.markSet != 0 }

// decode reads the statements of a rule and builds its text in nft's words.
func (r *nftRule) decode(statements []any) {
	words := make([]string, 0, len(statements))
	for _, s := range statements {
		m, _ := s.(map[string]any)
		for name, arg := range m {
			if name == "counter" {
				continue
			}
			words = append(words, r.statement(name, arg))
		}
	}
	r.text = strings.Join(words, " ")
	if len(r.text) > 300 {
		r.text = r.text[:300] + "..."
	}
}

func (r *nftRule) statement(name string, arg any) string {
	switch name {
	case "match":
		return r.match(arg)
	case "jump", "goto":
		t, _ := member(arg, "target")
		r.target = nftText(t)
		return name + " " + r.target
	case "drop", "accept", "return", "reject":
		r.verdict = name
		return name
	case "masquerade":
		flags, _ := member(arg, "flags")
		r.masquerade = true
		r.fullyRandom = strings.Contains(nftText(flags), "fully-random")
		return strings.TrimSpace("masquerade " + nftText(flags))
	case "mangle":
		return r.mangle(arg)
	case "vmap":
		key, _ := member(arg, "key")
		data, _ := member(arg, "data")
		r.dispatch(key, data)
		if s, ok := data.(string); ok {
			r.lookup = strings.TrimPrefix(s, "@")
		}
		return nftText(key) + " vmap " + nftText(data)
	case "dnat":
		return r.translate(arg)
	case "set":
		set, _ := member(arg, "set")
		elem, _ := member(arg, "elem")
		r.update = strings.TrimPrefix(nftText(set), "@")
		return "update " + nftText(set) + " { " + nftText(elem) + " }"
	}
	r.other = true
	return name
}

func (r *nftRule) match(arg any) string {
	left, _ := member(arg, "left")
	right, _ := member(arg, "right")
	op, _ := member(arg, "op")
	l, rt, o := nftText(left), nftText(right), nftText(op)
	not := o == "!="
	switch l {
	case "ip saddr", "ip6 saddr":
		r.saddr, r.notSaddr = rt, not
	case "ip daddr", "ip6 daddr":
		r.daddr = rt
		r.other = r.other || not
	case "meta l4proto":
		r.proto = rt
		r.other = r.other || not
	case "fib saddr type":
		r.fromLocal = rt == "local" && !not
		r.other = r.other || !r.fromLocal
	case "ct state":
		r.state = true
	case "meta iifname":
		r.iif, r.notSaddr = rt, not
	default:
		mask, ok := strings.CutPrefix(l, "meta mark & ")
		bits, err := strconv.ParseUint(mask, 0, 32)
		if !ok || err != nil || rt != "0" && rt != "0x0" {
			r.other = true
			break
		}
		r.markTest, r.markUnset = bits, !not
	}
	if o == "==" || o == "in" {
		return l + " " + rt
	}
	return l + " " + o + " " + rt
}

func (r *nftRule) mangle(arg any) string {
	key, _ := member(arg, "key")
	value, _ := member(arg, "value")
	k, v := nftText(key), nftText(value)
	if k == "meta mark" {
		if bits, ok := strings.CutPrefix(v, "meta mark | "); ok {
			r.markSet, _ = strconv.ParseUint(bits, 0, 32) // 0 marks nothing
		}
		if bits, ok := strings.CutPrefix(v, "meta mark ^ "); ok {
			r.markToggle, _ = strconv.ParseUint(bits, 0, 32)
		}
	}
	return k + " set " + v
}

// translate reads dnat to an address, and from 1.36 to a random one of a map.
func (r *nftRule) translate(arg any) string {
	addr, _ := member(arg, "addr")
	if m, ok := member(addr, "map"); ok {
		key, _ := member(m, "key")
		data, _ := member(m, "data")
		r.dispatch(key, data)
		return "dnat to " + nftText(key) + " map " + nftText(data)
	}
	port, _ := member(arg, "port")
	r.dnat = joinAddress(nftText(addr), nftText(port))
	return "dnat to " + r.dnat
}

// dispatch reads numgen's modulus and the entries it chooses from.
func (r *nftRule) dispatch(key, data any) {
	gen, ok := member(key, "numgen")
	if !ok {
		return
	}
	mod, _ := member(gen, "mod")
	mode, _ := member(gen, "mode")
	r.random = nftText(mode) == "random"
	r.mod = number(mod)
	set, _ := member(data, "set")
	list, _ := set.([]any)
	for _, e := range list {
		pair, _ := e.([]any)
		if len(pair) != 2 {
			continue
		}
		entry := nftEntry{key: number(pair[0])}
		if parts, ok := member(pair[1], "concat"); ok {
			if p, _ := parts.([]any); len(p) == 2 {
				entry.target = joinAddress(nftText(p[0]), nftText(p[1]))
			}
		} else {
			entry.target, _ = decodeVerdict(pair[1])
		}
		r.entries = append(r.entries, entry)
	}
}

// number returns -1 for what is not a whole number.
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
