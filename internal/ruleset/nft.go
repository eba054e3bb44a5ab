package ruleset

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"nodegate/internal/input"
)

// KubeProxyTable is the name of kube-proxy's own nftables table, in families ip and ip6.
const KubeProxyTable = "kube-proxy"

// NFTTable is a table of nftables.
type NFTTable struct {
	Family string
	Name   string
	Chains []*NFTChain        // in the order of the listing
	Sets   map[string]*NFTSet // includes maps

	byName map[string]*NFTChain
}

// NewNFTTable returns an empty table of kube-proxy.
func NewNFTTable(family string) *NFTTable {
	return &NFTTable{Family: family, Name: KubeProxyTable, byName: map[string]*NFTChain{}, Sets: map[string]*NFTSet{}}
}

// Chain returns the chain of that name, or nil if the table lacks it.
func (t *NFTTable) Chain(name string) *NFTChain { return t.byName[name] }

// NFTChain is a chain of nftables.
type NFTChain struct {
	Name     string
	Hook     string // for a base chain; otherwise empty
	Policy   string // of a base chain: accept, drop; empty if not read
	Priority int
	Handle   int
	Line     int
	Index    int // position in Chains
	Rules    []*NFTRule
}

// NFTSet is a set or a map. The elements of a set have an empty Verdict.
type NFTSet struct {
	Name     string
	Handle   int
	Line     int
	Timeout  int
	Elements []NFTElement
}

// NFTElement is an element of a set or map.
type NFTElement struct {
	Key     []string // the parts of a concatenation
	Target  string   // chain of a goto or jump
	Verdict string   // drop, reject, ...
	Comment string
}

func (e NFTElement) String() string { return strings.Join(e.Key, " . ") }

// nftObject is one member of the array "nftables".
type nftObject struct {
	Table *nftBody
	Chain *nftBody
	Rule  *nftBody
	Set   *nftBody
	Map   *nftBody
}

type nftBody struct {
	Family, Table, Name, Chain string
	Hook, Policy               string
	Handle                     int
	Prio                       json.RawMessage
	Timeout                    int
	Type                       any // of a chain or of a set's key: a name, or a list of names
	Expr                       []any
	Elem                       []any
}

// nftParser reads the output of `nft -j list ruleset` into set, without the tables of other programs.
type nftParser struct {
	in    *input.JSON
	set   *Set
	items int
}

func (p *nftParser) parse() error {
	if err := p.in.Open('{', "nft -j list ruleset"); err != nil {
		return err
	}
	key, err := p.in.Token()
	if err != nil {
		return p.in.Fail(err)
	}
	if key != "nftables" {
		return input.Unreadable(p.in.Line(), "this JSON is not from `nft -j list ruleset`: its first key is %.60q, not \"nftables\"",
			fmt.Sprint(key))
	}
	if err := p.in.Open('[', "nftables"); err != nil {
		return err
	}
	for p.in.More() {
		var o nftObject
		at := p.in.Line()
		if err := p.in.Decode(&o); err != nil {
			return p.in.Fail(err)
		}
		if err := p.addObject(&o, at); err != nil {
			return err
		}
	}
	for range 2 { // ] and }
		if _, err := p.in.Token(); err != nil {
			return p.in.Fail(err)
		}
	}
	return nil
}

func (p *nftParser) addObject(o *nftObject, line int) error {
	p.items++
	switch {
	case p.items > maxItems:
		return input.Unknown(line, "more than %d objects", maxItems)
	case o.Table != nil:
		p.proxyTable(o.Table.Family, o.Table.Name)
	case o.Chain != nil:
		if t := p.proxyTable(o.Chain.Family, o.Chain.Table); t != nil {
			c := t.AddChain(o.Chain.Name)
			c.Hook, c.Policy, c.Handle, c.Line = o.Chain.Hook, o.Chain.Policy, o.Chain.Handle, line
			c.Priority, _ = strconv.Atoi(string(o.Chain.Prio)) // 0 if not set
		}
	case o.Rule != nil:
		if t := p.proxyTable(o.Rule.Family, o.Rule.Table); t != nil {
			r := &NFTRule{Handle: o.Rule.Handle, Line: line}
			r.decode(o.Rule.Expr)
			c := t.byName[o.Rule.Chain]
			if c == nil {
				return input.Unreadable(line, "the rule's chain %.60q is missing from the listing", o.Rule.Chain)
			}
			c.Rules = append(c.Rules, r)
		}
	case o.Set != nil:
		p.addSet(o.Set, line)
	case o.Map != nil:
		p.addSet(o.Map, line)
	}
	return nil
}

// proxyTable returns kube-proxy's table of a family, or nil for any other table.
func (p *nftParser) proxyTable(family, name string) *NFTTable {
	if name != KubeProxyTable || family != IPv4 && family != IPv6 {
		return nil
	}
	for _, t := range p.set.NFT {
		if t.Family == family {
			return t
		}
	}
	t := NewNFTTable(family)
	p.set.NFT = append(p.set.NFT, t)
	return t
}

// AddChain returns the chain of that name and creates it if necessary.
func (t *NFTTable) AddChain(name string) *NFTChain {
	c := t.byName[name]
	if c == nil {
		c = &NFTChain{Name: name, Index: len(t.Chains)}
		t.byName[name] = c
		t.Chains = append(t.Chains, c)
	}
	return c
}

func (p *nftParser) addSet(b *nftBody, line int) {
	t := p.proxyTable(b.Family, b.Table)
	if t == nil {
		return
	}
	s := &NFTSet{Name: b.Name, Handle: b.Handle, Line: line, Timeout: b.Timeout}
	types, _ := b.Type.([]any)
	for _, e := range b.Elem {
		el := decodeElement(e)
		for i := range min(len(types), len(el.Key)) {
			if types[i] == "inet_proto" {
				el.Key[i] = protocolName(el.Key[i])
			}
		}
		s.Elements = append(s.Elements, el)
	}
	t.Sets[b.Name] = s
}

// decodeElement reads "10.96.0.1", {"concat": [...]}, {"elem": {"val": ..., "comment": ...}} or, in
// maps, a pair of one of these and a verdict.
func decodeElement(e any) NFTElement {
	var el NFTElement
	if pair, ok := e.([]any); ok && len(pair) == 2 {
		el.Target, el.Verdict = decodeVerdict(pair[1])
		e = pair[0]
	}
	if val, ok := member(e, "elem"); ok {
		if c, ok := member(val, "comment"); ok {
			el.Comment = nftText(c)
		}
		if v, ok := member(val, "val"); ok {
			e = v
		}
	}
	if parts, ok := member(e, "concat"); ok {
		list, _ := parts.([]any)
		for _, part := range list {
			el.Key = append(el.Key, nftText(part))
		}
		return el
	}
	el.Key = []string{nftText(e)}
	return el
}

// decodeVerdict reads {"goto": {"target": X}}, {"jump": {"target": X}} and {"drop": null}.
func decodeVerdict(v any) (target, verdict string) {
	m, _ := v.(map[string]any)
	for name, arg := range m {
		if verdict = name; name == "goto" {
			verdict = "" // kube-proxy's form
		}
		t, _ := member(arg, "target")
		target = nftText(t)
	}
	return target, verdict
}

// member returns a member of a JSON object.
func member(v any, name string) (any, bool) {
	m, ok := v.(map[string]any)
	if !ok {
		return nil, false
	}
	v, ok = m[name]
	return v, ok
}
