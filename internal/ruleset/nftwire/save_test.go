package nftwire_test

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"nodegate/internal/assert"
	"nodegate/internal/require"
	"nodegate/internal/ruleset"
	"nodegate/internal/ruleset/nftwire"
)

// recordedSave returns the messages of the rule forms that package nftables compares with iptables-nft-save.
func recordedSave(tb testing.TB, family string) []byte {
	tb.Helper()
	b := require.ReadFile(tb, "testdata/save-"+family+".bin")
	return b
}

// printed returns the text that Save writes for messages, and the number of their rules. The rules of a chain are contiguous.
func printed(family string, b []byte) (text string, rules int, err error) {
	var out bytes.Buffer
	s := nftwire.NewSave(family, &out)
	of := map[string][][]byte{}
	for kind, message := range messages(b) {
		if kind != unix.NFT_MSG_NEWRULE {
			if err := s.Add(kind, message); err != nil {
				return "", 0, err
			}
			continue
		}
		where := name(message, unix.NFTA_RULE_TABLE) + " " + name(message, unix.NFTA_RULE_CHAIN)
		of[where] = append(of[where], message)
	}
	for _, t := range s.Tables() {
		s.Begin(t)
		for _, c := range t.Chains {
			s.Of(c.Name)
			for _, message := range of[t.Name+" "+c.Name] {
				rules++
				if err := s.AddRule(unix.NFT_MSG_NEWRULE, message); err != nil {
					return "", 0, err
				}
			}
		}
		if err := s.End(); err != nil {
			return "", 0, err
		}
	}
	return out.String(), rules, nil
}

// name returns a string attribute of a message.
func name(message []byte, kind uint16) string {
	for b := message[min(4, len(message)):]; len(b) >= 4; {
		size := int(binary.NativeEndian.Uint16(b))
		if size < 4 || size > len(b) {
			break
		}
		if binary.NativeEndian.Uint16(b[2:]) == kind {
			return strings.TrimSuffix(string(b[4:size]), "\x00")
		}
		b = b[min(len(b), (size+3)&^3):]
	}
	return ""
}

// attr encodes an attribute.
func attr(kind uint16, values ...[]byte) []byte {
	value := slices.Concat(values...)
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
	b = append(binary.NativeEndian.AppendUint16(b, kind), value...)
	return append(b, make([]byte, -len(b)&3)...)
}

// rule encodes a rule of chain FORWARD.
func rule(expressions ...[]byte) []byte {
	return slices.Concat([]byte{2, 0, 0, 0}, attr(unix.NFTA_RULE_TABLE, []byte("filter\x00")),
		attr(unix.NFTA_RULE_CHAIN, []byte("FORWARD\x00")), attr(unix.NFTA_RULE_EXPRESSIONS, expressions...))
}

// extension encodes a match or a target.
func extension(kind, name string, revision byte, info []byte) []byte {
	return attr(unix.NFTA_LIST_ELEM, attr(unix.NFTA_EXPR_NAME, []byte(kind+"\x00")),
		attr(unix.NFTA_EXPR_DATA, attr(unix.NFTA_MATCH_NAME, []byte(name+"\x00")), attr(unix.NFTA_MATCH_REV, []byte{0, 0, 0, revision}),
			attr(unix.NFTA_MATCH_INFO, info)))
}

// TestExtensions covers forms that the kernels of other tests lack, and invalid ones that no kernel sends.
func TestExtensions(t *testing.T) {
	counted := append([]byte("ct_state_invalid_dropped_pkts"), make([]byte, 40-29)...)
	marked := []byte{0, 0x40, 0, 0, 0, 0x40, 0, 0, 1, 0, 0, 0}
	ported := []byte{1, 0, 2, 0, 3, 0, 3, 0, 0, 0, 0, 3}
	for _, c := range []struct {
		message []byte
		want    string
	}{
		{rule(extension("match", "nfacct", 0, counted)), "-A FORWARD -m nfacct --nfacct-name  ct_state_invalid_dropped_pkts\n"}, // as recorded
		{rule(extension("match", "mark", 1, marked)), "-A FORWARD -m mark ! --mark 0x4000/0x4000\n"},                            // before 1.8
		{rule(extension("match", "tcp", 0, ported)), "-A FORWARD -m tcp ! --sport 1:2 ! --dport 3\n"},
		{rule(extension("match", "nfacct", 0, counted[:32])),
			`table filter, chain FORWARD, rule 0: expression "match": nfacct.0: 32 bytes, want 40`},
		{rule(extension("match", "nfacct", 2, counted)), `table filter, chain FORWARD, rule 0: expression "match": nfacct.2: unsupported extension`},
		{rule(extension("target", "nfacct", 0, counted)), `table filter, chain FORWARD, rule 0: expression "target": nfacct.0: unsupported extension`},
		{rule(extension("target", "MARK", 2, marked[:8]), extension("match", "mark", 1, marked)),
			`table filter, chain FORWARD, rule 0: expression "match": it follows the target`},
		{rule(extension("match", "comment", 0, append([]byte("a\nCOMMIT"), make([]byte, 248)...))),
			`table filter, chain FORWARD, rule 0: expression "match": comment.0: a string that does not print as one line`},
	} {
		var out bytes.Buffer
		s := nftwire.NewSave(ruleset.IPv4, &out)
		s.Of("FORWARD")
		err := s.AddRule(unix.NFT_MSG_NEWRULE, c.message)
		_ = s.End() // a buffer never fails
		got, _, _ := strings.Cut(out.String(), "COMMIT")
		if err != nil {
			got = err.Error()
		}
		assert.Equal(t, got, c.want)
	}
	s := nftwire.NewSave(ruleset.IPv4, &bytes.Buffer{})
	if s.Of("INPUT"); s.AddRule(unix.NFT_MSG_NEWRULE, rule(extension("match", "mark", 1, marked))) == nil {
		t.Error("a rule of another chain was accepted")
	}
}

// FuzzSave reads arbitrary messages. If Save accepts them, its text must parse and have as many rules.
func FuzzSave(f *testing.F) {
	for _, family := range []string{ruleset.IPv4, ruleset.IPv6} {
		b := recordedSave(f, family)
		_, rules, err := printed(family, b)
		require.True(f, err == nil && rules >= 50, "%v %v", rules, err)
		f.Add(b, family == ruleset.IPv6)
	}
	f.Fuzz(func(t *testing.T, b []byte, six bool) {
		family := map[bool]string{false: ruleset.IPv4, true: ruleset.IPv6}[six]
		text, rules, err := printed(family, b)
		if err == nil {
			sameRules(t, text, rules)
		}
	})
}

// FuzzSaveRule reads one arbitrary rule of chain FORWARD.
func FuzzSaveRule(f *testing.F) {
	for _, family := range []string{ruleset.IPv4, ruleset.IPv6} {
		for kind, message := range messages(recordedSave(f, family)) {
			if kind == unix.NFT_MSG_NEWRULE {
				f.Add(message, family == ruleset.IPv6)
			}
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, six bool) {
		var out bytes.Buffer
		s := nftwire.NewSave(map[bool]string{false: ruleset.IPv4, true: ruleset.IPv6}[six], &out)
		s.Begin(&nftwire.SaveTable{Name: "filter"})
		s.Of(name(b, unix.NFTA_RULE_CHAIN))
		if s.AddRule(unix.NFT_MSG_NEWRULE, b) != nil || name(b, unix.NFTA_RULE_CHAIN) != "FORWARD" {
			return
		}
		require.NoError(t, s.End())
		sameRules(t, out.String(), 1)
	})
}

func sameRules(t *testing.T, text string, want int) {
	t.Helper()
	set, err := ruleset.Parse("", strings.NewReader(text))
	rules := 0
	if err == nil {
		for _, table := range set.Saves[0].Tables {
			for _, c := range table.Chains {
				rules += len(c.Rules)
			}
		}
	}
	if err != nil && strings.Contains(err.Error(), "declared twice") {
		return // no kernel sends duplicate chains; an error is enough
	}
	require.True(t, rules == want && (err == nil || text == ""), "%d rules, not %d: %v\n%s", rules, want, err, text)
}
