// Package ruleset parses the output of packet filter programs (iptables-save text, or the JSON of
// `nft -j list ruleset`) into one model.
//
// A Set is immutable once parsed: every check of a run and the audit share it. A judge that needs
// state for each chain keeps it in a slice of its own, indexed by Chain.Index.
//
// The package opens no files and runs no programs.
package ruleset

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"iter"
	"regexp"
	"strings"

	"nodegate/internal/input"
)

// Set is the output of one program.
type Set struct {
	Source string // command, "netlink: " and what was read, or file name
	Note   string // a remark for the operator about how the rules were read
	Lines  int    // of iptables-save text
	Saves  []*Save
	NFT    []*NFTTable // kube-proxy's own tables
	IPVS   *IPVS       // nil if not read, or if the kernel has none
}

// Families of rules, as nft names them.
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
	Family  string // from the header, else from the addresses in the rules, else from the program's name
	Backend string // Legacy or NFT; empty if no header names the backend
	Tables  []*Table
	Chains  int // in all tables
}

// Program returns the iptables command that changes the rules of a source: "iptables-nft" for
// "iptables-nft-save" and "netlink: iptables-nft".
func Program(source string) string {
	return strings.TrimPrefix(strings.TrimSuffix(source, "-save"), "netlink: ")
}

// Table returns the table of that name, or nil.
func (s *Save) Table(name string) *Table {
	for _, t := range s.Tables {
		if t.Name == name {
			return t
		}
	}
	return nil
}

// Tables returns the iptables tables of that name, one from each save that has it.
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
	Source string // Source of the set
	Family string // Family of the save
	Name   string
	Line   int
	Chains []*Chain // declared chains first, in their order

	byName map[string]*Chain // nil until all declarations are read
}

// Chain returns the chain of that name, or nil if t is nil or lacks it.
func (t *Table) Chain(name string) *Chain {
	if t == nil {
		return nil
	}
	return t.byName[name]
}

// Rules returns the rules of a chain. It yields nothing if t is nil or lacks the chain.
func (t *Table) Rules(chain string) iter.Seq[*Rule] {
	return func(yield func(*Rule) bool) {
		c := t.Chain(chain)
		for i := 0; c != nil && i < len(c.Rules) && yield(&c.Rules[i]); i++ {
		}
	}
}

// Declares reports whether the table declares a chain of that name.
func (t *Table) Declares(name string) bool {
	c := t.Chain(name)
	return c != nil && c.Declared()
}

// Chain is one chain of a table of iptables.
type Chain struct {
	Name   string
	Policy string // ACCEPT or DROP for a built-in chain, "-" for any other; empty if the chain is not declared
	Rules  []Rule
	Index  int32 // position among the chains of the save, from 1; the chains of a table are contiguous
	Line   int32 // line of the declaration
	Refs   int32 // number of rules that jump here
	Lost   int32 // number of rules whose target is neither a chain of the table nor a common built-in target
}

// Declared reports whether the chain has a declaration. Every chain in a program's output has one.
func (c *Chain) Declared() bool { return c.Policy != "" }

// ErrIncompatible is the error for a table that iptables-nft-save cannot print.
var ErrIncompatible = errors.New("the table has rules that only nft can print; list them with `nft -a list ruleset`")

// ErrNoRules is the error for an input without any rules. An iptables backend that has never been
// used prints nothing.
var ErrNoRules error = &input.Error{
	Msg: "the input is empty: no tables, no rules; save them as root with iptables-save or nft -j list ruleset", Kind: input.ErrUnknown,
}

// Parse reads iptables-save text (either backend, with or without counters, one or more saves) or
// the JSON of `nft -j list ruleset`. It detects the format. Every error is an input.Error; it is
// ErrNoRules if the input is empty.
func Parse(source string, r io.Reader) (*Set, error) {
	br := bufio.NewReader(r)
	set := &Set{Source: source}
	head, _ := br.Peek(len("\ufeff"))
	if bytes.HasPrefix(head, []byte("\ufeff")) { // a byte order mark
		if _, err := br.Discard(len("\ufeff")); err != nil {
			return nil, &input.Error{Msg: "reading rules", Kind: input.ErrUnknown, Err: err}
		}
	}
	head, err := br.Peek(br.Size())
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, &input.Error{Msg: "reading rules", Kind: input.ErrUnknown, Err: err}
	}
	// Before the program's output may be a prompt, a code fence or a log line.
	if at := regexp.MustCompile(`(?m)^[ \t]*(?:\*|\{|# Generated )`).FindIndex(head); at != nil && head[at[1]-1] == '{' {
		lines := bytes.Repeat([]byte("\n"), bytes.Count(head[:at[0]], []byte("\n")))
		_, _ = br.Discard(at[0]) // has been read
		p := nftParser{in: input.NewJSON(io.MultiReader(bytes.NewReader(lines), br)), set: set}
		if err := p.parse(); err != nil {
			return nil, err
		}
		return set, nil
	}
	p := saveParser{lines: input.NewLines(br), set: set}
	if err := p.parse(); err != nil {
		return nil, err
	}
	return set, nil
}
