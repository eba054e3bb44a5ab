package path

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"nodegate/internal/ruleset"
	"nodegate/internal/sorted"
)

// Classes divides destinations into classes. Rules outside of kube-proxy's chains treat all destinations of a class alike, so
// that one walk serves all Services of a class.
type Classes struct {
	addresses []netip.Addr // where a class begins
	ports     []uint32
	own       func(netip.Addr) Answer
}

// Class is one class. It is comparable.
type Class struct {
	address, port int
	own           Answer
	protocol      string
}

// NewClasses collects the addresses and numbers that rules name, whatever they stand for: more of them only make the classes smaller.
func NewClasses(sets []*ruleset.Set, family string, own func(netip.Addr) Answer) *Classes {
	c := &Classes{own: own}
	for _, set := range sets {
		for _, save := range set.Saves {
			for _, t := range save.Tables {
				for _, chain := range t.Chains {
					for i := 0; save.Family == family && !strings.HasPrefix(chain.Name, "KUBE-S") && i < len(chain.Rules); i++ {
						c.add(chain.Rules[i].Text)
					}
				}
			}
		}
		for _, t := range set.Foreign {
			for _, s := range t.Sets {
				for i := range s.Elements {
					c.add(s.Elements[i].String())
				}
			}
			for _, chain := range t.Chains {
				for _, r := range chain.Rules {
					c.add(r.Text)
				}
			}
		}
	}
	sorted.By(c.addresses, netip.Addr.Compare)
	slices.Sort(c.ports)
	c.addresses, c.ports = slices.Compact(c.addresses), slices.Compact(c.ports)
	return c
}

// add adds the bounds in the text of a rule or of an element.
func (c *Classes) add(text string) {
	words := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" ,{}!\"[]", r) })
	for _, w := range words {
		if w[0] < '0' || w[0] > '9' && !strings.Contains(w, ":") {
			continue
		}
		if p, ok := parsePrefix(w); ok {
			c.span(p.Masked().Addr(), lastOf(p))
			continue
		}
		first, last, isRange := strings.Cut(w, "-")
		from, err := netip.ParseAddr(first)
		if to, failed := netip.ParseAddr(last); isRange && err == nil && failed == nil {
			c.span(from, to)
			continue
		}
		for number := range strings.FieldsFuncSeq(w, func(r rune) bool { return r < '0' || r > '9' }) {
			if n, err := strconv.ParseUint(number, 10, 16); err == nil {
				c.ports = append(c.ports, uint32(n), uint32(n)+1)
			}
		}
	}
}

func (c *Classes) span(first, last netip.Addr) {
	if c.addresses = append(c.addresses, first); last.Next().IsValid() {
		c.addresses = append(c.addresses, last.Next())
	}
	// The second address of "range 10.0.0.1, 10.0.0.9" arrives as an address of its own.
}

// Names reports whether a range that a rule names begins at an address, or ends before it.
func (c *Classes) Names(a netip.Addr) bool { return slices.Contains(c.addresses, a) }

// Within returns the first addresses of a range that rules name.
func (c *Classes) Within(r netip.Prefix) (list []netip.Addr) {
	for _, a := range c.addresses {
		if r.Contains(a) && len(list) < 50 {
			list = append(list, a)
		}
	}
	return list
}

// Of returns the class of a destination. Without an address it is the class of a port.
func (c *Classes) Of(a netip.Addr, protocol string, port uint16) Class {
	one := Class{protocol: protocol, own: Unknown}
	if a.IsValid() {
		one.own = c.own(a)
		one.address, _ = slices.BinarySearchFunc(c.addresses, a, func(b, a netip.Addr) int {
			return cmp.Or(b.Compare(a), -1) // a class begins at its bound
		})
	}
	one.port, _ = slices.BinarySearchFunc(c.ports, uint32(port), func(b, n uint32) int { return cmp.Or(cmp.Compare(b, n), -1) })
	return one
}
