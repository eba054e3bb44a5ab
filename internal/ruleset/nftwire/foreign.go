package nftwire

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"nodegate/internal/nlattr"
	"nodegate/internal/ruleset"
)

// Foreign decodes the tables of programs other than kube-proxy and iptables, and the chains of other programs in tables
// named like iptables' tables. Unlike Decoder it never
// fails because of an unknown expression: the rule's text then has a word that begins with a question
// mark, and package path takes it for a condition that is not known. A set that it cannot read is left
// out of the table, and so is not known either.
type Foreign struct {
	// Link returns the name of the link with an index, or "".
	Link func(index uint32) string

	tables []*foreignTable
	items  int
}

// foreignTable is one table of another program.
type foreignTable struct {
	Decoder
	broken   map[string]bool // sets that cannot be read
	finished bool            // the sets are complete
	shared   bool            // iptables-nft has the table too
	asked    map[string]bool // chains whose rules were requested
}

// ForeignChain is a chain whose rules the caller requests.
type ForeignChain struct {
	Family      byte // NFPROTO_
	Table, Name string
}

// mostElements bounds the elements of a set: a larger one is not known.
const mostElements = 100_000

func foreignFamilies() map[byte]string {
	return map[byte]string{unix.NFPROTO_INET: "inet", unix.NFPROTO_IPV4: ruleset.IPv4, unix.NFPROTO_IPV6: ruleset.IPv6,
		unix.NFPROTO_ARP:    "arp",
		unix.NFPROTO_BRIDGE: "bridge", unix.NFPROTO_NETDEV: "netdev"}
}

// Add reads one message about a table, a chain, a set, its elements or a rule. Tables come first, then
// chains, sets and their elements, and at last the rules.
func (f *Foreign) Add(message int, b []byte) error {
	if len(b) < nfGenMsg {
		return nlattr.ErrCut
	}
	if f.items++; f.items > maxItems {
		return fmt.Errorf("more than %d objects", maxItems)
	}
	a, err := splitAttributes(b[nfGenMsg:])
	if err != nil {
		return err
	}
	family := foreignFamilies()[b[0]]
	if message == unix.NFT_MSG_NEWTABLE {
		f.addTable(family, &a)
		return nil
	}
	t := f.table(family, string(a.text(unix.NFTA_RULE_TABLE)))
	if t == nil {
		return nil
	}
	switch message {
	case unix.NFT_MSG_NEWCHAIN:
		if t.shared && ruleset.IsChainOfIPTables(string(a.text(unix.NFTA_CHAIN_NAME))) {
			return nil
		}
		return t.addChain(&a)
	case unix.NFT_MSG_NEWSET:
		t.addForeignSet(&a)
	case unix.NFT_MSG_NEWSETELEM:
		t.addForeignElements(&a)
	case unix.NFT_MSG_NEWRULE:
		t.addForeignRule(&a, f.Link)
	default:
		return fmt.Errorf("unknown message type %d", message)
	}
	return nil
}

func (f *Foreign) addTable(family string, a *attributes) {
	const dormant = 1 // NFT_TABLE_F_DORMANT: its chains are not in the hooks
	name := string(a.text(unix.NFTA_TABLE_NAME))
	if family == "" || family != "inet" && name == ruleset.KubeProxyTable || a.number(unix.NFTA_TABLE_FLAGS)&dormant != 0 {
		return
	}
	t := &foreignTable{Decoder: Decoder{family: family, table: ruleset.NewNFTTable(family), sets: map[string]*wireSet{}},
		broken: map[string]bool{}, asked: map[string]bool{}, shared: ruleset.IsTableOfIPTables(family, name)}
	t.table.Name = name
	f.tables = append(f.tables, t)
}

func (f *Foreign) table(family, name string) *foreignTable {
	for _, t := range f.tables {
		if t.family == family && t.table.Name == name {
			return t
		}
	}
	return nil
}

// Chains returns the chains whose rules matter, and that it has not returned yet. Of a table that iptables-nft has
// too, these are other base chains and the chains to which their rules lead: call it again after reading the rules.
func (f *Foreign) Chains() (all []ForeignChain) {
	for _, t := range f.tables {
		var reached map[string]bool
		if t.shared {
			reached = t.table.Reached()
		}
		for _, c := range t.table.Chains {
			if !t.asked[c.Name] && (!t.shared || reached[c.Name]) {
				t.asked[c.Name] = true
				all = append(all, ForeignChain{t.protocol(), t.table.Name, c.Name})
			}
		}
	}
	return all
}

// Sets returns the sets that can be read.
func (f *Foreign) Sets() (all []ForeignChain) {
	for _, t := range f.tables {
		for _, name := range t.names {
			if !t.broken[name] {
				all = append(all, ForeignChain{t.protocol(), t.table.Name, name})
			}
		}
	}
	return all
}

func (t *foreignTable) protocol() byte {
	for number, name := range foreignFamilies() {
		if name == t.family {
			return number
		}
	}
	return 0
}

// Tables returns the decoded tables that have base chains.
func (f *Foreign) Tables() (all []*ruleset.NFTTable) {
	for _, t := range f.tables {
		if slices.ContainsFunc(t.table.Chains, func(c *ruleset.NFTChain) bool { return c.Hook != "" }) {
			all = append(all, t.table)
		}
	}
	return all
}

// addForeignRule decodes a rule. The rules of a chain come in their order.
func (t *foreignTable) addForeignRule(a *attributes, link func(uint32) string) {
	c := t.table.Chain(string(a.text(unix.NFTA_RULE_CHAIN)))
	if c == nil {
		return
	}
	t.finishSets()
	out := &ruleset.NFTRule{Handle: int(a.number(unix.NFTA_RULE_HANDLE))}
	r := foreignRule{rule: rule{Decoder: &t.Decoder, out: out}, t: t, link: link}
	if err := r.decode(a[unix.NFTA_RULE_EXPRESSIONS], func(name string, b []byte) error { r.read(name, b); return nil }); err != nil {
		r.addWords("?rule", "queue")
	}
	out.Text = string(r.words)
	c.Rules = append(c.Rules, out)
}
