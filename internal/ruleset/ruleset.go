// Package ruleset reads what the programs of the packet filter print, iptables-save text or the JSON of `nft -j list ruleset`, into
// one model.
//
// A Set does not change once it is parsed, and nobody may change it: every check of a run and the audit share it. A judge that needs
// state of a chain keeps it in a slice of its own, by Chain.Index.
//
// The package opens no file and runs no program.
package ruleset

import (
	"bufio"
	"errors"
	"io"
	"iter"
	"strings"

	"nodegate/internal/input"
)

// Set is what one program printed.
type Set struct {
	Source string // what was run, "netlink: " and what was read, or the name of the file
	Note   string // what a person should know of the reading
	Lines  int    // of iptables-save text
	Saves  []*Save
	NFT    []*NFTTable // kube-proxy's own tables
	IPVS   *IPVS       // nil: not read, or the kernel has none

	// ServiceChains counts the chains of kube-proxy's iptables mode by family, as an nft listing shows them: nft cannot print
	// their matches, so that nothing else of them is kept.
	ServiceChains map[string]int
}

// Families of rules, in nft's words.
const (
	IPv4 = "ip"
	IPv6 = "ip6"
)

// Backends of iptables.
const (
	Legacy = "legacy"
	NFT    = "nft"
)

// Save is the output of one run of iptables-save or ip6tables-save.
type Save struct {
	Family  string // from the header, else from the addresses of the rules, else from the program's name
	Backend string // Legacy or NFT; empty when no header names it
	Tables  []*Table
	Chains  int // in all tables
}

// Program returns the iptables that changes what a source shows: "iptables-nft" of "iptables-nft-save" and "netlink: iptables-nft".
func Program(source string) string {
	return strings.TrimPrefix(strings.TrimSuffix(source, "-save"), "netlink: ")
}

// Table returns the table of that name, nil if there is none.
func (s *Save) Table(name string) *Table {
	for _, t := range s.Tables {
		if t.Name == name {
			return t
		}
	}
	return nil
}

// Tables returns the tables of iptables with that name: one of each save that has it.
func Tables(sets []*Set, name string) []*Table {
	var found []*Table
	for _, set := range sets {
		for _, s := range set.Saves {
			if t := s.Table(name); t != nil {
				found = append(found, t)
			}
		}
	}
	return found
}

// Table is one table of iptables.
type Table struct {
	Source string // of its set
	Family string // of its save
	Name   string
	Line   int
	Chains []*Chain // declared ones first, in their order

	byName map[string]*Chain // nil while declarations are read
}

// Chain returns nil when the table is nil or has no such chain.
func (t *Table) Chain(name string) *Chain {
	if t == nil {
		return nil
	}
	return t.byName[name]
}

// Rules returns the rules of a chain, none when the table is nil or has no such chain.
func (t *Table) Rules(chain string) iter.Seq[*Rule] {
	return func(yield func(*Rule) bool) {
		c := t.Chain(chain)
		for i := 0; c != nil && i < len(c.Rules) && yield(&c.Rules[i]); i++ {
		}
	}
}

// Declares reports whether the table has a chain of that name with a declaration of its own.
func (t *Table) Declares(name string) bool {
	c := t.Chain(name)
	return c != nil && c.Declared()
}

// Chain is one chain of a table of iptables.
type Chain struct {
	Name   string
	Policy string // ACCEPT or DROP of a built-in chain, "-" of any other; empty when only rules name the chain
	Rules  []Rule
	Index  int32 // among the chains of the save, from 1; those of one table follow each other
	Line   int32 // of the declaration
	Refs   int32 // rules that jump here
	Jumps  int32 // rules that jump to other chains
	Only   int32 // Index of the chain where all its jumps lead, 0 if they lead to several
	Lost   int32 // rules whose target is neither a chain of the table nor a frequent one of iptables itself
}

// Declared reports whether the chain has a declaration, as every chain has that a program printed.
func (c *Chain) Declared() bool { return c.Policy != "" }

// ErrIncompatible is the error for a table that iptables-nft-save does not print.
var ErrIncompatible = errors.New("rules of nft's own are in it, and iptables cannot print it: see them with nft -a list ruleset")

// ErrNoRules is the error for an input without any rule: a backend of iptables that nobody has used prints nothing.
var ErrNoRules error = &input.Error{Msg: "the input has no rules: not even a table", Kind: input.ErrUnknown}

// Parse reads iptables-save text (either backend, with or without counters, one save or several after each other) or the JSON of
// `nft -j list ruleset`, whichever r has. It fails with an input.Error, which is ErrNoRules when there is nothing to read.
func Parse(source string, r io.Reader) (*Set, error) {
	br := bufio.NewReader(r)
	set := &Set{Source: source}
	for n := 1; n <= 4096; n++ {
		head, err := br.Peek(n)
		if err != nil {
			if errors.Is(err, io.EOF) {
				break
			}
			return nil, &input.Error{Msg: "reading rules", Kind: input.ErrUnknown, Err: err}
		}
		switch head[n-1] {
		case ' ', '\t', '\r', '\n':
			continue
		case '{':
			p := nftParser{in: input.NewJSON(br), set: set}
			if err := p.parse(); err != nil {
				return nil, err
			}
			return set, nil
		}
		break
	}
	p := saveParser{lines: input.NewLines(br), set: set}
	if err := p.parse(); err != nil {
		return nil, err
	}
	return set, nil
}

// addServiceChain counts a chain of kube-proxy's iptables mode in an nft listing.
func (s *Set) addServiceChain(family, chain string) {
	if strings.HasPrefix(chain, "KUBE-SVC-") || strings.HasPrefix(chain, "KUBE-SVL-") {
		if s.ServiceChains == nil {
			s.ServiceChains = map[string]int{}
		}
		s.ServiceChains[family]++
	}
}
