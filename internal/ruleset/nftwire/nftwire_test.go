package nftwire_test

import (
	"encoding/binary"
	"iter"
	"testing"

	"golang.org/x/sys/unix"

	"nodegate/internal/require"
	"nodegate/internal/ruleset"
	"nodegate/internal/ruleset/nftwire"
)

// messages yields recorded kernel messages. Each has a byte for the type, two for the length, and the message.
func messages(b []byte) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		for len(b) >= 3 {
			size := min(int(binary.BigEndian.Uint16(b[1:])), len(b)-3)
			if !yield(int(b[0]), b[3:3+size]) {
				return
			}
			b = b[3+size:]
		}
	}
}

// recorded returns the messages of the rule forms that package nftables compares with nft -j.
func recorded(tb testing.TB, family string) []byte {
	tb.Helper()
	b := require.ReadFile(tb, "testdata/forms-"+family+".bin")
	return b
}

func decode(family string, b []byte) (*ruleset.NFTTable, error) {
	d := nftwire.New(family)
	rules := d.Rules()
	for kind, message := range messages(b) {
		add := d.Add
		if kind == unix.NFT_MSG_NEWRULE {
			add = rules.Add
		}
		if err := add(kind, message); err != nil {
			return nil, err
		}
	}
	return d.Table()
}

// TestOtherChain checks that the decoder rejects rules of a chain that was not requested.
func TestOtherChain(t *testing.T) {
	b := recorded(t, ruleset.IPv4)
	d := nftwire.New(ruleset.IPv4)
	rules := d.Rules()
	rules.Of = "empty"
	for kind, message := range messages(b) {
		if kind != unix.NFT_MSG_NEWRULE {
			require.NoError(t, d.Add(kind, message))
		} else if rules.Add(kind, message) == nil {
			t.Fatal("a rule of another chain was accepted")
		}
	}
}

// FuzzTable decodes arbitrary messages.
func FuzzTable(f *testing.F) {
	for _, family := range []string{ruleset.IPv4, ruleset.IPv6} {
		b := recorded(f, family)
		_, err := decode(family, b)
		require.NoError(f, err)
		f.Add(b, family == ruleset.IPv6)
	}
	f.Fuzz(func(t *testing.T, b []byte, six bool) {
		table, err := decode(map[bool]string{false: ruleset.IPv4, true: ruleset.IPv6}[six], b)
		if err != nil {
			return
		}
		for i, c := range table.Chains {
			require.True(t, c.Index == i && table.Chain(c.Name) == c,
				"chain %q has index %d, not %d, or a lookup by name fails", c.Name, c.Index, i)
		}
	})
}

// FuzzMessage decodes one message after the messages of a real table: elements of a set, or a rule that may look them up.
func FuzzMessage(f *testing.F) {
	table := recorded(f, ruleset.IPv4)
	for kind, message := range messages(table) {
		f.Add(kind, message)
	}
	f.Fuzz(func(t *testing.T, kind int, b []byte) {
		d := nftwire.New(ruleset.IPv4)
		for kind, message := range messages(table) {
			if kind != unix.NFT_MSG_NEWRULE {
				require.NoError(t, d.Add(kind, message))
			}
		}
		rules := d.Rules()
		_ = d.Add(kind, b) // an error is fine
		if rules.Add(kind, b) != nil {
			return
		}
		for _, c := range d.Chains() {
			for _, r := range c.Rules {
				require.True(t, r.Text != "" || r.Target == "", "a rule without text: %+v", r)
			}
		}
		_, _ = d.Table()
	})
}
