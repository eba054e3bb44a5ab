package nftwire_test

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"nodegate/internal/ruleset"
	"nodegate/internal/ruleset/nftwire"
)

// foreign decodes messages as those of a table that another program made.
func foreign(b []byte) (*nftwire.Foreign, error) {
	f := &nftwire.Foreign{Link: func(uint32) string { return "lo" }}
	table := append([]byte{unix.NFPROTO_INET, 0, 0, 0, 15, 0, unix.NFTA_TABLE_NAME, 0}, "kube-proxy\x00\x00"...)
	if err := f.Add(unix.NFT_MSG_NEWTABLE, table); err != nil {
		return nil, err
	}
	for kind, message := range messages(b) {
		if len(message) > 0 {
			message = slices.Clone(message)
			message[0] = unix.NFPROTO_INET
		}
		if err := f.Add(kind, message); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// FuzzForeign checks that no messages make the decoder of other programs' tables panic, and that a rule
// which it does not know has a word with a question mark: its text is never empty.
func FuzzForeign(f *testing.F) {
	for _, family := range []string{ruleset.IPv4, ruleset.IPv6} {
		b := recorded(f, family)
		got, err := foreign(b)
		if err != nil || len(got.Chains()) < 10 || len(got.Tables()) != 1 {
			f.Fatal(err, got.Chains())
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := foreign(b)
		if err != nil {
			return
		}
		got.Sets()
		for _, table := range got.Tables() {
			for _, c := range table.Chains {
				for _, r := range c.Rules {
					if strings.Contains(r.Text, "  ") && !strings.Contains(r.Text, "?") {
						t.Fatalf("an empty word: %q", r.Text)
					}
				}
			}
		}
	})
}

// attribute encodes an attribute of netlink.
func attribute(kind uint16, value []byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
	b = append(binary.NativeEndian.AppendUint16(b, kind), value...)
	return append(b, make([]byte, -len(b)&3)...)
}

// expression encodes an expression of a rule: its name and attributes.
func expression(name string, attributes ...[]byte) []byte {
	return attribute(unix.NFTA_LIST_ELEM, slices.Concat(attribute(unix.NFTA_EXPR_NAME, []byte(name+"\x00")),
		attribute(unix.NFTA_EXPR_DATA, slices.Concat(attributes...))))
}

// number encodes a number as nftables does.
func number(kind uint16, n uint32) []byte {
	return attribute(kind, binary.BigEndian.AppendUint32(nil, n))
}

// TestForeignZone reads `ct zone set 3` of a chain of ARP's hook output: the numbers of its hooks are not those of IP.
func TestForeignZone(t *testing.T) {
	f := &nftwire.Foreign{Link: func(uint32) string { return "lo" }}
	header := []byte{unix.NFPROTO_ARP, 0, 0, 0}
	add := func(kind int, attributes ...[]byte) {
		if err := f.Add(kind, slices.Concat(header, slices.Concat(attributes...))); err != nil {
			t.Fatal(err)
		}
	}
	add(unix.NFT_MSG_NEWTABLE, attribute(unix.NFTA_TABLE_NAME, []byte("a\x00")))
	add(unix.NFT_MSG_NEWCHAIN, attribute(unix.NFTA_CHAIN_TABLE, []byte("a\x00")), attribute(unix.NFTA_CHAIN_NAME, []byte("c\x00")),
		attribute(unix.NFTA_CHAIN_HOOK, slices.Concat(number(unix.NFTA_HOOK_HOOKNUM, 1), number(unix.NFTA_HOOK_PRIORITY, 0))))
	zone := attribute(unix.NFTA_DATA_VALUE, binary.NativeEndian.AppendUint16(nil, 3))
	add(unix.NFT_MSG_NEWRULE, attribute(unix.NFTA_RULE_TABLE, []byte("a\x00")), attribute(unix.NFTA_RULE_CHAIN, []byte("c\x00")),
		attribute(unix.NFTA_RULE_EXPRESSIONS, slices.Concat(
			expression("immediate", number(unix.NFTA_IMMEDIATE_DREG, 1), attribute(unix.NFTA_IMMEDIATE_DATA, zone)),
			expression("ct", number(unix.NFTA_CT_KEY, unix.NFT_CT_ZONE), number(4, 1)))))
	c := f.Tables()[0].Chains[0]
	if c.Hook != "output" || len(c.Rules) != 1 || c.Rules[0].Text != "ct zone set 3" {
		t.Errorf("hook %s, rules %+v", c.Hook, c.Rules)
	}
}
