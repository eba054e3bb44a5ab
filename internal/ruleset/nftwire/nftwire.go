// Package nftwire decodes the netlink messages of nf_tables. Decoder turns kube-proxy's tables into
// the model of package ruleset, equal to the model of `nft -j` output. Save turns the tables of
// iptables-nft into the text of iptables-nft-save, which package ruleset parses.
//
// The package knows little more than the rules that kube-proxy and the programs beside it write.
// Anything else is an error, never a guess: the caller then runs the program instead. The package
// opens no sockets; package host does.
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
	nfGenMsg = 4         // size of struct nfgenmsg, the header of every message
	maxItems = 2_000_000 // maximum number of chains, elements and rules in one table
	slab     = 256       // rules per allocation
)

// Decoder reads the messages of one table: first its chains, then its sets, their elements, and the
// rules. Elements of different sets may be added concurrently.
type Decoder struct {
	family string
	table  *ruleset.NFTTable
	sets   map[string]*wireSet
	names  []string // names of the sets, in their order
	items  atomic.Int64
	fields []field
}

// Rules reads the rules of some chains. Different Rules may read the rules of different chains
// concurrently.
type Rules struct {
	*Decoder
	Of   string // the requested chain: a rule of another chain is an error. "" accepts the rules of all chains
	slab []ruleset.NFTRule
	rule rule
}

// New returns a decoder for kube-proxy's table of a family.
func New(family string) *Decoder {
	return &Decoder{family: family, table: ruleset.NewNFTTable(family), sets: map[string]*wireSet{},
		fields: fields(family)}
}

// Add reads one message of a type such as NFT_MSG_NEWCHAIN, without its netlink header. It ignores
// messages about other tables, which a dump of chains includes. It retains no part of the message.
func (d *Decoder) Add(message int, b []byte) error {
	if len(b) < nfGenMsg {
		return nlattr.ErrCut
	}
	a, err := splitAttributes(b[nfGenMsg:])
	if err != nil {
		return err
	}
	const table = unix.NFTA_RULE_TABLE // 1 in all messages
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
	return fmt.Errorf("unknown message type %d", message)
}

// Rules returns a reader of rules.
func (d *Decoder) Rules() *Rules { return &Rules{Decoder: d} }

// Add reads one message about a rule.
func (d *Rules) Add(message int, b []byte) error {
	if len(b) < nfGenMsg || message != unix.NFT_MSG_NEWRULE {
		return fmt.Errorf("unknown message type %d", message)
	}
	a, err := splitAttributes(b[nfGenMsg:])
	if err != nil {
		return err
	}
	if d.items.Add(1) > maxItems {
		return fmt.Errorf("more than %d objects", maxItems)
	}
	return d.addRule(&a)
}

// Chains returns the chains. The caller requests their rules.
func (d *Decoder) Chains() []*ruleset.NFTChain { return d.table.Chains }

// Set is a set whose elements the caller requests.
type Set struct {
	Name string
	// Numbers is the number of elements if the set is part of a rule and its keys are numbers. The
	// keys are 0 to Numbers-1 if numgen makes them.
	Numbers int
}

// Sets returns the sets, including the anonymous sets in rules.
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

// Forget discards the elements of a set that were added so far.
func (d *Decoder) Forget(set string) { d.sets[set].elements = nil }

// Table returns the decoded table.
func (d *Decoder) Table() (*ruleset.NFTTable, error) {
	for _, name := range d.names {
		if s := d.sets[name]; s.out != nil {
			if err := s.moveToModel(); err != nil {
				return nil, fmt.Errorf("set %s: %w", name, err)
			}
			d.table.Sets[name] = s.out
		}
	}
	return d.table, nil
}

// name returns the name of a chain. It reuses the string of the chain itself, because most names
// occur many times.
func (d *Decoder) name(b []byte) string {
	if c := d.table.Chain(string(b)); c != nil {
		return c.Name
	}
	return string(b)
}

func (d *Decoder) addChain(a *attributes) error {
	name := string(a.text(unix.NFTA_CHAIN_NAME))
	if name == "" {
		return errors.New("the chain lacks a name")
	}
	c := d.table.AddChain(name)
	c.Handle = int(a.number(unix.NFTA_CHAIN_HANDLE))
	if a[unix.NFTA_CHAIN_HOOK] == nil {
		return nil
	}
	hook, err := splitAttributes(a[unix.NFTA_CHAIN_HOOK])
	if err != nil {
		return fmt.Errorf("chain %s: %w", name, err)
	}
	hooks := []string{"prerouting", "input", "forward", "output", "postrouting"}
	n := hook.number(unix.NFTA_HOOK_HOOKNUM)
	if n >= uint64(len(hooks)) {
		return fmt.Errorf("chain %s: unknown hook %d", name, n)
	}
	c.Hook, c.Priority = hooks[n], int(int32(hook.number(unix.NFTA_HOOK_PRIORITY)))
	c.Policy = "accept"
	if a[unix.NFTA_CHAIN_POLICY] != nil && a.number(unix.NFTA_CHAIN_POLICY) == 0 { // NF_DROP
		c.Policy = "drop"
	}
	return nil
}

func (d *Rules) addRule(a *attributes) error {
	c := d.table.Chain(string(a.text(unix.NFTA_RULE_CHAIN)))
	if c == nil || d.Of != "" && d.Of != c.Name {
		return fmt.Errorf("received a rule of chain %.60q, which was not requested", a.text(unix.NFTA_RULE_CHAIN))
	}
	if len(d.slab) == 0 {
		d.slab = make([]ruleset.NFTRule, slab)
	}
	out := &d.slab[0]
	d.slab = d.slab[1:]
	out.Handle = int(a.number(unix.NFTA_RULE_HANDLE))
	d.rule = rule{Decoder: d.Decoder, out: out, words: d.rule.words[:0]}
	if err := d.rule.decode(a[unix.NFTA_RULE_EXPRESSIONS], d.rule.readExpression); err != nil {
		return fmt.Errorf("chain %s, rule %d: %w", c.Name, out.Handle, err)
	}
	out.Text = string(d.rule.words)
	c.Rules = append(c.Rules, out)
	return nil
}
