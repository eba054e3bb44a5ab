package kubeproxy

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// nftTableName is kube-proxy's own table, in families ip and ip6.
const nftTableName = "kube-proxy"

type nftTable struct {
	family, name string
	chains       map[string]*nftChain
	order        []*nftChain
	sets         map[string]*nftSet // and maps
}

type nftChain struct {
	name   string
	hook   string
	prio   int
	handle int
	line   int
	rules  []*nftRule
	refs   int
	blamed bool
	owner  *nftNode
}

// nftSet is a set or a map. Elements of a set have no verdict.
type nftSet struct {
	name     string
	handle   int
	line     int
	timeout  int
	elements []nftElement
}

type nftElement struct {
	key     []string // parts of the concatenation
	target  string   // of a goto or jump
	verdict string   // drop, reject, ...
	comment string
}

// nftObject is one member of the array "nftables".
type nftObject struct {
	Metainfo json.RawMessage
	Table    *nftBody
	Chain    *nftBody
	Rule     *nftBody
	Set      *nftBody
	Map      *nftBody
}

type nftBody struct {
	Family, Table, Name, Chain string
	Hook, Comment              string
	Handle                     int
	Prio                       json.RawMessage
	Timeout                    int
	Expr                       []any
	Elem                       []any
}

// ParseNFT reads the output of `nft -j list ruleset`. Of tables other than kube-proxy's it only counts the Service chains that
// iptables mode has left. It fails with an InputError.
func ParseNFT(r io.Reader) (*Ruleset, error) {
	p := nftParser{in: newJSONInput(r), rs: &Ruleset{}}
	if err := p.parse(); err != nil {
		return nil, err
	}
	return p.rs, nil
}

type nftParser struct {
	in    *jsonInput
	rs    *Ruleset
	items int
}

func (p *nftParser) parse() error {
	if err := p.in.open('{', "nft -j list ruleset"); err != nil {
		return err
	}
	key, err := p.in.dec.Token()
	if err != nil {
		return p.in.fail(err)
	}
	if key != "nftables" {
		return unreadable(p.in.here(), "not the JSON of nft -j list ruleset: it begins with %.60q, not \"nftables\"", fmt.Sprint(key))
	}
	if err := p.in.open('[', "nftables"); err != nil {
		return err
	}
	for p.in.dec.More() {
		var o nftObject
		at := p.in.here()
		if err := p.in.dec.Decode(&o); err != nil {
			return p.in.fail(err)
		}
		if err := p.object(&o, at); err != nil {
			return err
		}
	}
	for range 2 { // ] and }
		if _, err := p.in.dec.Token(); err != nil {
			return p.in.fail(err)
		}
	}
	return nil
}

func (p *nftParser) object(o *nftObject, line int) error {
	p.items++
	switch {
	case p.items > maxItems:
		return unknown(line, "more than %d objects", maxItems)
	case o.Table != nil:
		p.table(o.Table.Family, o.Table.Name)
	case o.Chain != nil:
		if t := p.table(o.Chain.Family, o.Chain.Table); t != nil {
			c := t.chain(o.Chain.Name)
			c.hook, c.handle, c.line = o.Chain.Hook, o.Chain.Handle, line
			c.prio, _ = strconv.Atoi(string(o.Chain.Prio)) // 0 where there is none
		} else {
			p.rs.addLeftover(o.Chain.Family, o.Chain.Name)
		}
	case o.Rule != nil:
		if t := p.table(o.Rule.Family, o.Rule.Table); t != nil {
			r := &nftRule{handle: o.Rule.Handle, line: line, comment: o.Rule.Comment}
			r.decode(o.Rule.Expr)
			c := t.chains[o.Rule.Chain]
			if c == nil {
				return unreadable(line, "a rule of chain %.60q, which the listing does not have", o.Rule.Chain)
			}
			c.rules = append(c.rules, r)
		}
	case o.Set != nil:
		p.set(o.Set, line)
	case o.Map != nil:
		p.set(o.Map, line)
	}
	return nil
}

// table returns nil for a table that is not kube-proxy's.
func (p *nftParser) table(family, name string) *nftTable {
	if name != nftTableName || family != familyIPv4 && family != familyIPv6 {
		return nil
	}
	for _, t := range p.rs.nft {
		if t.family == family {
			return t
		}
	}
	t := &nftTable{family: family, name: name, chains: map[string]*nftChain{}, sets: map[string]*nftSet{}}
	p.rs.nft = append(p.rs.nft, t)
	return t
}

func (t *nftTable) chain(name string) *nftChain {
	c := t.chains[name]
	if c == nil {
		c = &nftChain{name: name}
		t.chains[name] = c
		t.order = append(t.order, c)
	}
	return c
}

func (p *nftParser) set(b *nftBody, line int) {
	t := p.table(b.Family, b.Table)
	if t == nil {
		return
	}
	s := &nftSet{name: b.Name, handle: b.Handle, line: line, timeout: b.Timeout}
	for _, e := range b.Elem {
		s.elements = append(s.elements, decodeElement(e))
	}
	t.sets[b.Name] = s
}

// decodeElement reads "10.96.0.1", {"concat": [...]}, {"elem": {"val": ..., "comment": ...}} and, in maps, a pair of one of
// these and a verdict.
func decodeElement(e any) nftElement {
	var el nftElement
	if pair, ok := e.([]any); ok && len(pair) == 2 {
		el.target, el.verdict = decodeVerdict(pair[1])
		e = pair[0]
	}
	if val, ok := member(e, "elem"); ok {
		if c, ok := member(val, "comment"); ok {
			el.comment = nftText(c)
		}
		if v, ok := member(val, "val"); ok {
			e = v
		}
	}
	if parts, ok := member(e, "concat"); ok {
		list, _ := parts.([]any)
		for _, part := range list {
			el.key = append(el.key, nftText(part))
		}
		return el
	}
	el.key = []string{nftText(e)}
	return el
}

// decodeVerdict reads {"goto": {"target": X}} and {"drop": null}.
func decodeVerdict(v any) (target, verdict string) {
	m, _ := v.(map[string]any)
	for name, arg := range m {
		if t, ok := member(arg, "target"); ok {
			return nftText(t), ""
		}
		verdict = name
	}
	return "", verdict
}

func (e nftElement) String() string { return strings.Join(e.key, " . ") }

// member returns a member of a JSON object.
func member(v any, name string) (any, bool) {
	m, ok := v.(map[string]any)
	if !ok {
		return nil, false
	}
	v, ok = m[name]
	return v, ok
}
