package ruleset

import (
	"encoding/json"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
)

// NFTRule is a rule of kube-proxy's own table.
type NFTRule struct {
	Handle, Line int
	Text         string     // in nft's syntax, without counters; of a set the first elements
	Target       string     // chain of a jump or goto
	Sources      []string   // the elements of an anonymous set of sources: "10.0.0.0/8", "range 10.0.0.1, 10.0.0.5"
	Entries      []NFTEntry // the choices of numgen
}

// NFTEntry is one choice of numgen.
type NFTEntry struct {
	Key    int
	Target string // chain, or from 1.36 ip:port
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
			words = append(words, r.addStatement(name, arg)+otherKeys(name, arg))
		}
	}
	r.Text = strings.Join(words, " ")
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
		return MatchText(nftText(left), nftText(op), nftText(right))
	case "jump", "goto":
		t, _ := member(arg, "target")
		r.Target = nftText(t)
		return name + " " + r.Target
	case "masquerade":
		flags, _ := member(arg, "flags")
		return strings.TrimSpace("masquerade " + nftText(flags))
	case "mangle":
		key, _ := member(arg, "key")
		value, _ := member(arg, "value")
		return nftText(key) + " set " + nftText(value)
	case "vmap":
		key, _ := member(arg, "key")
		data, _ := member(arg, "data")
		r.parseDispatch(key, data)
		return nftText(key) + " vmap " + nftText(data)
	case "dnat", "snat":
		return r.addNAT(name, arg)
	case "set":
		set, _ := member(arg, "set")
		elem, _ := member(arg, "elem")
		return "update " + nftText(set) + " { " + nftText(elem) + " }"
	}
	if port, is := member(arg, "port"); is && name == "redirect" {
		return "redirect to :" + nftText(port)
	}
	return name
}

// otherKeys returns the keys of a statement that addStatement does not know: a rule with it is another rule.
func otherKeys(name string, arg any) (text string) {
	known, ok := map[string]string{"match": "op left right", "masquerade": "flags", "mangle": "key value", "vmap": "key data",
		"dnat": "addr port family", "set": "op set elem", "jump": "target", "goto": "target"}[name]
	m, _ := arg.(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if ok && !slices.Contains(strings.Fields(known), key) {
			text += " " + key + " " + nftText(m[key])
		}
	}
	return text
}

// MatchText returns a match in nft's syntax, for example of "ip saddr", "!=" and "10.0.0.0/8".
func MatchText(l, o, rt string) string {
	switch {
	case l == "meta mark" && rt == "0/1":
		l, rt = "meta mark & 2147483648", "0" // nft prints a test of the first bit as a prefix
	case l == "meta l4proto":
		rt = protocolName(rt)
	case l == "fib saddr type" && rt == "2": // RTN_LOCAL
		rt = "local"
	case strings.HasPrefix(l, "meta mark & ") && rt == "0x0":
		rt = "0"
	}
	if o == "in" || o == "==" && !strings.HasPrefix(l, "tcp flags") { // "tcp flags syn" is one of several
		return l + " " + rt
	}
	return l + " " + o + " " + rt
}

// addNAT reads a translation: to one address or, from 1.36, to a random address of a map.
func (r *NFTRule) addNAT(name string, arg any) string {
	addr, known := member(arg, "addr")
	port, _ := member(arg, "port")
	m, mapped := member(addr, "map")
	switch {
	case mapped:
		key, _ := member(m, "key")
		data, _ := member(m, "data")
		r.parseDispatch(key, data)
		return name + " to " + nftText(key) + " map " + nftText(data)
	case name == "dnat":
		return "dnat to " + net.JoinHostPort(nftText(addr), nftText(port))
	case !known:
		return name
	}
	return name + " to " + nftText(addr)
}

// parseDispatch reads the entries from which numgen chooses.
func (r *NFTRule) parseDispatch(key, data any) {
	if _, ok := member(key, "numgen"); !ok {
		return
	}
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
				entry.Target = net.JoinHostPort(nftText(p[0]), nftText(p[1]))
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
