package path

import (
	"net/netip"
	"strings"

	"nodegate/internal/ruleset"
)

// translate reads "to 10.0.0.1:80", "to tcp dport map { 80 : 10.0.0.1 }" and kube-proxy's choice among endpoints.
func (r *nftReader) translate(w string, k kind, from *ruleset.NFTRule) {
	defer func() { r.words = nil }()
	r.next() // to
	a := action{kind: k, text: w}
	switch first := r.next(); {
	case first == "numgen" && from.Entries != nil:
		a.kind = spread
		for _, e := range from.Entries {
			a.choices = append(a.choices, choice{r.destination(w, k, e.Target), 1 / float64(max(from.Modulus, 1))})
		}
	case isSelector(first):
		parts := r.selectors(first)
		if r.next() != "map" {
			r.unknown(w + " to " + first)
			break
		}
		a.kind, a.choose = spread, r.mapped(w, k, parts)
	case strings.HasSuffix(first, ":map"): // the port comes from a map
		r.unknown(w + " to a port of a map")
	case r.peek() == "map" || first == "range" || first == "":
	default:
		a = r.destination(w, k, first)
	}
	r.act(a)
}

func isSelector(w string) bool {
	switch w {
	case "ip", "ip6", "meta", "ct", "tcp", "udp", "sctp", "th", "fib", "numgen", "jhash", "symhash", "ether", "rt":
		return true
	}
	return false
}

// destination returns the action for one address. The kernel ignores an address of the other family.
func (r *nftReader) destination(w string, k kind, text string) action {
	a := action{kind: k, text: w}
	if a.to, a.port = parseDestination(text); a.to.IsValid() && (a.to.Addr().Is4() != (r.family == ruleset.IPv4)) {
		a = action{kind: next}
	}
	return a
}

// mapped returns the entries of a map of addresses that a packet may select. Without an entry the rule does not match.
func (r *nftReader) mapped(w string, k kind, parts []selector) func(*Node, *Packet) ([]action, Answer) {
	var keys []string
	var actions []action
	if name, is := strings.CutPrefix(r.peek(), "@"); is {
		if set := r.t.Sets[name]; set != nil { // the addresses are not kept
			for i := range set.Elements {
				keys, actions = append(keys, set.Elements[i].String()), append(actions, action{kind: k, text: w})
			}
			return choose(r.tests(parts, keys), actions)
		}
		return unknownEntry(action{kind: k, text: w})
	}
	list, known := r.values()
	if !known {
		return unknownEntry(action{kind: k, text: w})
	}
	for _, one := range list {
		key, value, _ := strings.Cut(one, " : ")
		a := r.destination(w, k, value)
		if address, port, both := strings.Cut(value, " . "); both {
			a = r.destination(w, k, address)
			if _, err := netip.ParseAddr(address); err == nil {
				_, a.port = parseDestination(":" + port)
			}
		}
		keys, actions = append(keys, key), append(actions, a)
	}
	return choose(r.tests(parts, keys), actions)
}

func unknownEntry(a action) func(*Node, *Packet) ([]action, Answer) {
	return func(*Node, *Packet) ([]action, Answer) { return []action{a}, Unknown }
}

// tests returns the comparison of each key.
func (r *nftReader) tests(parts []selector, keys []string) (tests []func(*Node, *Packet) Answer) {
	for _, key := range keys {
		test := r.compare(parts, []string{key})
		if test == nil {
			test = func(*Node, *Packet) Answer { return Unknown }
		}
		tests = append(tests, test)
	}
	return tests
}

// choose returns the action whose test answers yes, or those that may.
func choose(tests []func(*Node, *Packet) Answer, actions []action) func(*Node, *Packet) ([]action, Answer) {
	return func(n *Node, p *Packet) (list []action, found Answer) {
		found = No
		for i, test := range tests {
			switch test(n, p) {
			case Yes:
				return actions[i : i+1], Yes
			case Unknown:
				found, list = Unknown, append(list, actions[i])
			}
		}
		return list, found
	}
}
