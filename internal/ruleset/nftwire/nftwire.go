// Package nftwire decodes what nf_tables sends over netlink: kube-proxy's tables into the model of package ruleset, as the JSON of
// `nft -j` gives it (Decoder), and iptables-nft's into the text of iptables-nft-save (Save), which package ruleset reads.
//
// It knows what kube-proxy and its neighbours write, and not much more. What it does not know is an error, never a guess: whoever asks
// it runs the program then. It opens no socket; package host does.
package nftwire

import (
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"nodegate/internal/nlattr"
	"nodegate/internal/ruleset"
)

const (
	nfGenMsg = 4         // the header of every message: struct nfgenmsg
	maxItems = 2_000_000 // chains, elements and rules of one table
	slab     = 256       // rules that one allocation serves
)

// Decoder reads the messages of one table: its chains first, then the sets, their elements, and the rules. The elements of
// different sets may be added at the same time.
type Decoder struct {
	family string
	table  *ruleset.NFTTable
	sets   map[string]*wireSet
	names  []string // of the sets, in their order
	items  atomic.Int64
	fields []field
}

// Rules reads the rules of some chains. Those of different chains may be read at the same time, by different Rules.
type Rules struct {
	*Decoder
	Of   string // the chain that was asked for; any other's rule is an error. Of all of them where it is ""
	slab []ruleset.NFTRule
	rule rule
}

// New returns a decoder for kube-proxy's table of a family.
func New(family string) *Decoder {
	return &Decoder{family: family, table: ruleset.NewNFTTable(family), sets: map[string]*wireSet{},
		fields: fields(family)}
}

// Add reads one message of a type, NFT_MSG_NEWCHAIN or the like, without its netlink header. Of messages about other tables, as a dump
// of chains has them, it takes nothing. It keeps no part of the message.
func (d *Decoder) Add(message int, b []byte) error {
	if len(b) < nfGenMsg {
		return nlattr.ErrCut
	}
	a, err := split(b[nfGenMsg:])
	if err != nil {
		return err
	}
	const table = unix.NFTA_RULE_TABLE // 1 of all of them
	if string(a.text(table)) != ruleset.KubeProxyTable {
		return nil
	}
	if d.items.Add(1) > maxItems {
		return fmt.Errorf("more than %d objects", maxItems)
	}
	switch message {
	case unix.NFT_MSG_NEWCHAIN:
		return d.addChain(&a)
	case unix.NFT_MSG_NEWSET:
		return d.addSet(&a)
	case unix.NFT_MSG_NEWSETELEM:
		return d.addElements(&a)
	}
	return fmt.Errorf("message %d is not known", message)
}

// Rules returns what reads rules.
func (d *Decoder) Rules() *Rules { return &Rules{Decoder: d} }

// Add reads the message about a rule.
func (d *Rules) Add(message int, b []byte) error {
	if len(b) < nfGenMsg || message != unix.NFT_MSG_NEWRULE {
		return fmt.Errorf("message %d is not known", message)
	}
	a, err := split(b[nfGenMsg:])
	if err != nil {
		return err
	}
	if d.items.Add(1) > maxItems {
		return fmt.Errorf("more than %d objects", maxItems)
	}
	return d.addRule(&a)
}

// Chains returns the chains: their rules are to be asked for.
func (d *Decoder) Chains() []*ruleset.NFTChain { return d.table.Chains }

// Set is a set whose elements are to be asked for.
type Set struct {
	Name string
	// Numbers is how many elements it has, where it is part of a rule and its keys are numbers: 0 to Numbers-1 where numgen makes them.
	Numbers int
}

// Sets returns the sets, those that are part of a rule too.
func (d *Decoder) Sets() []Set {
	all := make([]Set, len(d.names))
	for i, name := range d.names {
		all[i].Name = name
		if s := d.sets[name]; s.out == nil && len(s.key) == 1 && s.key[0] == integer {
			all[i].Numbers = s.size
		}
	}
	return all
}

// Forget takes back what was added of a set's elements.
func (d *Decoder) Forget(set string) { d.sets[set].elements = nil }

// Table returns what was read.
func (d *Decoder) Table() (*ruleset.NFTTable, error) {
	for _, name := range d.names {
		if s := d.sets[name]; s.out != nil {
			if err := s.list(); err != nil {
				return nil, fmt.Errorf("set %s: %w", name, err)
			}
			d.table.Sets[name] = s.out
		}
	}
	return d.table, nil
}

// name returns the name of a chain, the chain's own where there is one: most names are there many times.
func (d *Decoder) name(b []byte) string {
	if c := d.table.Chain(string(b)); c != nil {
		return c.Name
	}
	return string(b)
}

func (d *Decoder) addChain(a *attributes) error {
	name := string(a.text(unix.NFTA_CHAIN_NAME))
	if name == "" {
		return errors.New("a chain without a name")
	}
	c := d.table.AddChain(name)
	c.Handle = int(a.number(unix.NFTA_CHAIN_HANDLE))
	if a[unix.NFTA_CHAIN_HOOK] == nil {
		return nil
	}
	hook, err := split(a[unix.NFTA_CHAIN_HOOK])
	if err != nil {
		return fmt.Errorf("chain %s: %w", name, err)
	}
	hooks := []string{"prerouting", "input", "forward", "output", "postrouting"}
	n := hook.number(unix.NFTA_HOOK_HOOKNUM)
	if n >= uint64(len(hooks)) {
		return fmt.Errorf("chain %s: hook %d is not known", name, n)
	}
	c.Hook, c.Priority = hooks[n], int(int32(hook.number(unix.NFTA_HOOK_PRIORITY)))
	return nil
}

func (d *Rules) addRule(a *attributes) error {
	c := d.table.Chain(string(a.text(unix.NFTA_RULE_CHAIN)))
	if c == nil || d.Of != "" && d.Of != c.Name {
		return fmt.Errorf("a rule of chain %.60q, which was not asked for", a.text(unix.NFTA_RULE_CHAIN))
	}
	if len(d.slab) == 0 {
		d.slab = make([]ruleset.NFTRule, slab)
	}
	out := &d.slab[0]
	d.slab = d.slab[1:]
	out.Handle = int(a.number(unix.NFTA_RULE_HANDLE))
	d.rule = rule{Decoder: d.Decoder, out: out, words: d.rule.words[:0]}
	if err := d.rule.decode(a[unix.NFTA_RULE_EXPRESSIONS], d.rule.expression); err != nil {
		return fmt.Errorf("chain %s, rule %d: %w", c.Name, out.Handle, err)
	}
	text := string(d.rule.words)
	out.To, out.Text = text[d.rule.to:d.rule.end], ruleset.RuleText(text)
	c.Rules = append(c.Rules, out)
	return nil
}
