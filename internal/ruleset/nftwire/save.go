package nftwire

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"nodegate/internal/nlattr"
	"nodegate/internal/ruleset"
)

// Save writes the tables that iptables-nft keeps in nf_tables as iptables-nft-save prints them, line for line. It knows what
// kube-proxy, kubelet, flannel and the common CNI plugins write; what it does not know is an error. Tables are added first, then their
// chains, then the rules of one chain after the other.
type Save struct {
	Decoder
	tables []*SaveTable
	out    *bufio.Writer
	rule   saveRule
	of     string // the chain whose rules are added
}

// SaveTable is a table of iptables.
type SaveTable struct {
	Name   string
	Chains []SaveChain // in iptables-nft-save's order, from Begin on
}

// SaveChain is a chain of such a table.
type SaveChain struct {
	Name   string
	hook   int // its number, or user
	policy string
}

const user = math.MaxInt // the hook of a chain that has none

// NewSave returns what writes to w.
func NewSave(family string, w io.Writer) *Save {
	s := &Save{Decoder: Decoder{family: family, table: ruleset.NewNFTTable(family), fields: fields(family)},
		out: bufio.NewWriterSize(w, 32<<10)}
	if family == ruleset.IPv4 { // since iptables 1.8.10
		s.fields = append(s.fields, field{unix.NFT_PAYLOAD_NETWORK_HEADER, 9, "ip protocol", proto})
	}
	s.rule.Decoder = &s.Decoder
	return s
}

// Add reads the message about a table or a chain. It passes over those that are not iptables'.
func (s *Save) Add(message int, b []byte) error {
	a, err := s.attributes(b)
	if err != nil {
		return err
	}
	name := string(a.text(unix.NFTA_TABLE_NAME)) // NFTA_CHAIN_TABLE has the same number
	if !slices.Contains(saveTables(), name) {
		return nil
	}
	i := slices.IndexFunc(s.tables, func(t *SaveTable) bool { return t.Name == name })
	switch {
	case message == unix.NFT_MSG_NEWTABLE && i < 0:
		s.tables = append(s.tables, &SaveTable{Name: name})
	case message == unix.NFT_MSG_NEWCHAIN && i >= 0:
		c, err := saveChain(name, a)
		if err != nil {
			return fmt.Errorf("table %s, chain %.60q: %w", name, a.text(unix.NFTA_CHAIN_NAME), err)
		}
		s.tables[i].Chains = append(s.tables[i].Chains, c)
	default:
		return fmt.Errorf("message %d about table %s, which was not asked for", message, name)
	}
	return nil
}

// attributes splits a message.
func (s *Save) attributes(b []byte) (*attributes, error) {
	if len(b) < nfGenMsg {
		return nil, nlattr.ErrCut
	}
	if s.items.Add(1) > maxItems {
		return nil, fmt.Errorf("more than %d objects", maxItems)
	}
	a, err := split(b[nfGenMsg:])
	return &a, err
}

// saveTables returns iptables' tables in the order of iptables-nft-save.
func saveTables() []string { return []string{"mangle", "security", "raw", "filter", "nat"} }

func saveHooks() []string { return []string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"} }

// builtin returns how iptables makes the chain of a hook, if the table has one there.
func builtin(table string, hook int) (priority int32, kind string, ok bool) {
	inner := hook >= 1 && hook <= 3
	switch {
	case table == "mangle" && hook == 3:
		return -150, "route", true
	case table == "mangle":
		return -150, "filter", true
	case table == "raw":
		return -300, "filter", hook == 0 || hook == 3
	case table == "security":
		return 50, "filter", inner
	case table == "filter":
		return 0, "filter", inner
	case hook == 1 || hook == 4:
		return 100, "nat", true
	}
	return -100, "nat", hook != 2
}

// saveChain reads a chain. One of a hook must be as iptables makes it: any other is nft's own.
func saveChain(table string, a *attributes) (SaveChain, error) {
	c := SaveChain{Name: string(a.text(unix.NFTA_CHAIN_NAME)), hook: user, policy: "-"}
	if !plain(c.Name) {
		return c, errText
	}
	hook := slices.Index(saveHooks(), c.Name)
	if a[unix.NFTA_CHAIN_HOOK] == nil && hook < 0 {
		return c, nil
	}
	h, err := split(a[unix.NFTA_CHAIN_HOOK])
	if err != nil {
		return c, err
	}
	const typ = 7 // NFTA_CHAIN_TYPE
	priority, kind, ok := builtin(table, hook)
	if hook < 0 || !ok || h[unix.NFTA_HOOK_HOOKNUM] == nil || uint64(hook) != h.number(unix.NFTA_HOOK_HOOKNUM) ||
		int32(h.number(unix.NFTA_HOOK_PRIORITY)) != priority || string(a.text(typ)) != kind {
		return c, errors.New("its hook is none that iptables makes")
	}
	c.hook = hook
	c.policy = "ACCEPT"
	if a[unix.NFTA_CHAIN_POLICY] != nil && a.number(unix.NFTA_CHAIN_POLICY) == 0 {
		c.policy = "DROP"
	}
	return c, nil
}

// Tables returns the tables in iptables-nft-save's order.
func (s *Save) Tables() []*SaveTable {
	slices.SortFunc(s.tables, func(a, b *SaveTable) int {
		return cmp.Compare(slices.Index(saveTables(), a.Name), slices.Index(saveTables(), b.Name))
	})
	return s.tables
}

// Begin writes the head of a table. iptables-nft-save lists the chains of all its hooks, also those that are not there.
func (s *Save) Begin(t *SaveTable) {
	for hook, name := range saveHooks() {
		there := slices.ContainsFunc(t.Chains, func(c SaveChain) bool { return c.hook == hook })
		if _, _, ok := builtin(t.Name, hook); ok && !there {
			t.Chains = append(t.Chains, SaveChain{name, hook, "ACCEPT"})
		}
	}
	slices.SortFunc(t.Chains, func(a, b SaveChain) int {
		return cmp.Or(cmp.Compare(a.hook, b.hook), strings.Compare(a.Name, b.Name))
	})
	program := map[string]string{ruleset.IPv4: "iptables", ruleset.IPv6: "ip6tables"}[s.family]
	fmt.Fprintf(s.out, "# Generated by %s-nft (nf_tables), over netlink\n*%s\n", program, t.Name)
	for _, c := range t.Chains {
		fmt.Fprintf(s.out, ":%s %s [0:0]\n", c.Name, c.policy)
	}
}

// Of says whose rules come next. A rule of any other chain is an error.
func (s *Save) Of(chain string) { s.of = chain }

// AddRule writes a rule.
func (s *Save) AddRule(message int, b []byte) error {
	a, err := s.attributes(b)
	if err != nil {
		return err
	}
	if message != unix.NFT_MSG_NEWRULE || string(a.text(unix.NFTA_RULE_CHAIN)) != s.of {
		return fmt.Errorf("message %d about chain %.60q, which was not asked for", message, a.text(unix.NFTA_RULE_CHAIN))
	}
	if err := s.rule.read(a); err != nil {
		return fmt.Errorf("table %s, chain %s, rule %d: %w", a.text(unix.NFTA_RULE_TABLE), s.of, a.number(unix.NFTA_RULE_HANDLE), err)
	}
	_, _ = s.out.WriteString("-A ") // End returns the error
	_, _ = s.out.WriteString(s.of)
	for _, part := range s.rule.parts {
		_, _ = s.out.Write(part)
	}
	return s.out.WriteByte('\n')
}

// End writes the end of a table.
func (s *Save) End() error {
	_, _ = s.out.WriteString("COMMIT\n# Completed\n")
	return s.out.Flush()
}
