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
	"nodegate/internal/sorted"
)

// Save writes the tables that iptables-nft keeps in nf_tables exactly as iptables-nft-save prints
// them. It knows the rules of kube-proxy, kubelet, flannel and the common CNI plugins; anything
// else is an error. The caller adds the tables, then their chains, then the rules of one chain
// after another.
type Save struct {
	Decoder
	tables []*SaveTable
	out    *bufio.Writer
	rule   saveRule
	of     string // chain of the rules that are being added
}

// SaveTable is an iptables table.
type SaveTable struct {
	Name   string
	Chains []SaveChain // in iptables-nft-save's order once Begin was called
}

// SaveChain is a chain of a SaveTable.
type SaveChain struct {
	Name   string
	hook   int // hook number, or user
	policy string
}

const user = math.MaxInt // hook of a user-defined chain

// NewSave returns a Save that writes to w.
func NewSave(family string, w io.Writer) *Save {
	s := &Save{Decoder: Decoder{family: family, table: ruleset.NewNFTTable(family), fields: fields(family)},
		out: bufio.NewWriterSize(w, 32<<10)}
	if family == ruleset.IPv4 { // since iptables 1.8.10
		s.fields = append(s.fields, field{unix.NFT_PAYLOAD_NETWORK_HEADER, 9, "ip protocol", proto})
	}
	s.rule.Decoder = &s.Decoder
	return s
}

// Add reads one message about a table or a chain. It ignores tables that are not iptables tables.
func (s *Save) Add(message int, b []byte) error {
	a, err := s.splitMessage(b)
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
		return fmt.Errorf("unexpected message of type %d about table %s", message, name)
	}
	return nil
}

// splitMessage splits a message into its attributes.
func (s *Save) splitMessage(b []byte) (*attributes, error) {
	if len(b) < nfGenMsg {
		return nil, nlattr.ErrCut
	}
	if s.items.Add(1) > maxItems {
		return nil, fmt.Errorf("more than %d objects", maxItems)
	}
	a, err := splitAttributes(b[nfGenMsg:])
	return &a, err
}

// saveTables returns the tables of iptables in the order of iptables-nft-save.
func saveTables() []string { return []string{"mangle", "security", "raw", "filter", "nat"} }

func saveHooks() []string { return []string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"} }

// builtin returns the priority and type with which iptables creates the chain of a hook. ok is
// false if the table lacks a chain for the hook.
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

// saveChain reads a chain. A base chain must be exactly as iptables creates it: only nft creates
// any other.
func saveChain(table string, a *attributes) (SaveChain, error) {
	c := SaveChain{Name: string(a.text(unix.NFTA_CHAIN_NAME)), hook: user, policy: "-"}
	if !isPlain(c.Name) {
		return c, errText
	}
	hook := slices.Index(saveHooks(), c.Name)
	if a[unix.NFTA_CHAIN_HOOK] == nil && hook < 0 {
		return c, nil
	}
	h, err := splitAttributes(a[unix.NFTA_CHAIN_HOOK])
	if err != nil {
		return c, err
	}
	const typ = 7 // NFTA_CHAIN_TYPE
	priority, kind, ok := builtin(table, hook)
	if hook < 0 || !ok || h[unix.NFTA_HOOK_HOOKNUM] == nil || uint64(hook) != h.number(unix.NFTA_HOOK_HOOKNUM) ||
		int32(h.number(unix.NFTA_HOOK_PRIORITY)) != priority || string(a.text(typ)) != kind {
		return c, errors.New("a base chain that iptables does not create")
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
	sorted.By(s.tables, func(a, b *SaveTable) int {
		return cmp.Compare(slices.Index(saveTables(), a.Name), slices.Index(saveTables(), b.Name))
	})
	return s.tables
}

// Begin writes the head of a table. iptables-nft-save lists the built-in chains of all hooks,
// including those that do not exist.
func (s *Save) Begin(t *SaveTable) {
	for hook, name := range saveHooks() {
		there := slices.ContainsFunc(t.Chains, func(c SaveChain) bool { return c.hook == hook })
		if _, _, ok := builtin(t.Name, hook); ok && !there {
			t.Chains = append(t.Chains, SaveChain{name, hook, "ACCEPT"})
		}
	}
	sorted.By(t.Chains, func(a, b SaveChain) int {
		return cmp.Or(cmp.Compare(a.hook, b.hook), strings.Compare(a.Name, b.Name))
	})
	program := map[string]string{ruleset.IPv4: "iptables", ruleset.IPv6: "ip6tables"}[s.family]
	fmt.Fprintf(s.out, "# Generated by %s-nft (nf_tables), over netlink\n*%s\n", program, t.Name)
	for _, c := range t.Chains {
		fmt.Fprintf(s.out, ":%s %s [0:0]\n", c.Name, c.policy)
	}
}

// Of selects the chain of the next rules. A rule of any other chain is an error.
func (s *Save) Of(chain string) { s.of = chain }

// AddRule writes a rule.
func (s *Save) AddRule(message int, b []byte) error {
	a, err := s.splitMessage(b)
	if err != nil {
		return err
	}
	if message != unix.NFT_MSG_NEWRULE || string(a.text(unix.NFTA_RULE_CHAIN)) != s.of {
		return fmt.Errorf("unexpected message of type %d about chain %.60q", message, a.text(unix.NFTA_RULE_CHAIN))
	}
	if err := s.rule.readRule(a); err != nil {
		return fmt.Errorf("table %s, chain %s, rule %d: %w", a.text(unix.NFTA_RULE_TABLE), s.of, a.number(unix.NFTA_RULE_HANDLE), err)
	}
	_, _ = s.out.WriteString("-A ") // End returns the write error
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
