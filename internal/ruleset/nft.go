package ruleset

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
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

// UnmarshalJSON reads a table that json.Marshal wrote.
func (t *NFTTable) UnmarshalJSON(b []byte) error {
	type plain NFTTable
	if err := json.Unmarshal(b, (*plain)(t)); err != nil {
		return err
	}
	t.byName = make(map[string]*NFTChain, len(t.Chains))
	for i, c := range t.Chains {
		if c == nil || slices.Contains(c.Rules, nil) {
			return errors.New("a chain or a rule of an nft table is null")
		}
		c.Index = i
		t.byName[c.Name] = c
	}
	for name, set := range t.Sets {
		if set == nil {
			return fmt.Errorf("set %q of an nft table is null", name)
		}
	}
	return nil
}

// Chain returns the chain of that name, or nil if the table lacks it.
func (t *NFTTable) Chain(name string) *NFTChain { return t.byName[name] }

// NFTChain is a chain of nftables.
type NFTChain struct {
	Name     string
	Hook     string   // for a base chain; otherwise empty
	Devices  []string // at hook ingress or egress: the links
	Type     string   // of a base chain: filter, nat, route
	Policy   string   // of a base chain: accept, drop; empty if not read
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
	Dev                        any // of a chain: a name, or a list of names
	Timeout                    int
	Type                       any // of a chain or of a set's key: a name, or a list of names
	Flags                      any // of a table or set
	Expr                       []any
	Elem                       []any
}

// nftParser reads the output of `nft -j list ruleset` into set. Of iptables-nft's tables it only
// counts the Service chains that iptables mode has left behind.
type nftParser struct {
	in      *input.JSON
	set     *Set
	items   int
	dormant []string           // tables whose chains are not in the hooks: "ip nat"
	native  map[*NFTTable]bool // tables of iptables-nft with base chains of other programs
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
	p.set.keepNative()
	return nil
}

// names returns a name, or a list of names.
func names(v any) (list []string) {
	several, is := v.([]any)
	if !is {
		several = []any{v}
	}
	for _, one := range several {
		if name, is := one.(string); is {
			list = append(list, name)
		}
	}
	return list
}

func (p *nftParser) addObject(o *nftObject, line int) error {
	p.items++
	switch {
	case p.items > maxItems:
		return input.Unknown(line, "more than %d objects", maxItems)
	case o.Table != nil && o.Table.isDormant():
		p.dormant = append(p.dormant, o.Table.Family+" "+o.Table.Name)
	case o.Table != nil:
		p.proxyTable(o.Table.Family, o.Table.Name)
	case o.Chain != nil:
		if o.Chain.Table != KubeProxyTable {
			p.set.addServiceChain(o.Chain.Family, o.Chain.Name)
		}
		if t := p.table(o.Chain); t != nil {
			c := t.AddChain(o.Chain.Name)
			c.Hook, c.Policy, c.Handle, c.Line = o.Chain.Hook, o.Chain.Policy, o.Chain.Handle, line
			c.Type, _ = o.Chain.Type.(string)
			c.Devices = names(o.Chain.Dev)
			c.Priority, _ = strconv.Atoi(string(o.Chain.Prio)) // 0 if not set
		}
	case o.Rule != nil:
		if t := p.table(o.Rule); t != nil {
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

// isDormant reports whether the chains of a table are not in the hooks. nft 1.0.6 prints arbitrary bytes instead of this
// flag, because it reads freed memory.
func (b *nftBody) isDormant() bool {
	list, several := b.Flags.([]any)
	if !several && b.Flags != nil {
		list = []any{b.Flags}
	}
	return slices.ContainsFunc(list, func(flag any) bool { return flag != "owner" && flag != "persist" })
}

// table returns the table of a chain, rule or set, or nil for a table that is not kept.
func (p *nftParser) table(b *nftBody) *NFTTable {
	if t := p.proxyTable(b.Family, b.Table); t != nil {
		return t
	}
	if slices.Contains(p.dormant, b.Family+" "+b.Table) || !slices.Contains([]string{IPv4, IPv6, "inet", "bridge", "netdev"}, b.Family) {
		return nil
	}
	shared := IsTableOfIPTables(b.Family, b.Table)
	if shared && (IsChainOfIPTables(b.Name) || IsChainOfIPTables(b.Chain)) {
		return nil
	}
	i := slices.IndexFunc(p.set.Foreign, func(t *NFTTable) bool { return t.Family == b.Family && t.Name == b.Table })
	if i < 0 {
		i = len(p.set.Foreign)
		p.set.Foreign = append(p.set.Foreign, NewNFTTable(b.Family))
		p.set.Foreign[i].Name = b.Table
	}
	t := p.set.Foreign[i]
	if b.Hook != "" {
		p.native[t] = true
	}
	if shared && b.Chain != "" && !p.native[t] { // a rule: the chains come first
		return nil
	}
	return t
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
	t := p.table(b)
	if t == nil {
		return
	}
	s := &NFTSet{Name: b.Name, Handle: b.Handle, Line: line, Timeout: b.Timeout}
	types, _ := b.Type.([]any)
	for _, e := range b.Elem {
		el := decodeElement(e)
		for i := range min(len(types), len(el.Key)) {
			switch types[i] {
			case "inet_proto":
				el.Key[i] = protocolName(el.Key[i])
			case "inet_service":
				el.Key[i] = portNumber(el.Key[i])
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
